//! The program: the command line, then the mode it asks for.

use clap::Parser;
use dingo_spmd::cli::{Cli, Command};
use dingo_spmd::program;
use dingo_spmd::spmd::World;
use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = Cli::parse();
    program::ignore_file_size_signal();
    let world = match World::initialize(program::exit_status) {
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
    };
    ExitCode::from(world.end(result) as u8)
}
