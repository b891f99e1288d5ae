//! The program: the command line, then the mode it asks for.

use clap::Parser;
use dingo_spmd::cli::{Cli, Command};
use dingo_spmd::program;
use dingo_spmd::spmd::World;
use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = Cli::parse();
    program::ignore_file_size_signal();
    let world = match cli.needs_ranks() {
        true => World::initialize(program::exit_status),
        false => Ok(World::alone(program::exit_status)),
    };
    let world = match world {
        Ok(world) => world,
        Err(error) => {
            eprintln!("Error: {error}");
            return ExitCode::FAILURE;
        }
    };
    program::start_logging(world.rank);
    program::share_cores(world.local_size);
    let result = match &cli.command {
        None => program::train(&world, &cli.train),
        Some(Command::Bench(arguments)) => program::bench(&world, arguments),
        Some(Command::BenchPlot(arguments)) => program::bench_plot(&world, arguments),
        Some(Command::BenchDataset(arguments)) => program::bench_dataset(&world, arguments),
        Some(Command::BenchData(arguments)) => program::bench_data(&world, arguments),
        Some(Command::Check(arguments)) => program::check(arguments),
        Some(Command::Inspect(arguments)) => program::inspect(arguments),
        Some(Command::AppendStage(arguments)) => program::append_stage(arguments),
        Some(Command::Export(arguments)) => program::export(arguments),
        Some(Command::Submit(arguments)) => program::submit(arguments),
    };
    ExitCode::from(world.end(result) as u8)
}
