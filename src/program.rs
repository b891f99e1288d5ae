//! The modes of the program, as `main` calls them: each takes its arguments and gives the exit status.

mod tools;

pub use tools::{append_stage, check, export, inspect};

use crate::bench::{self, BenchError};
use crate::checkpoint::CheckpointError;
use crate::cli::{
    BenchArgs, BenchDataArgs, BenchDatasetArgs, BenchPlotArgs, SchedulerName, SubmitArgs, TrainArgs, UsageError,
};
use crate::data::DataError;
use crate::jobs::{self, JobsError, Scheduler, SubmitRequest};
use crate::nn::NnError;
use crate::settings::SettingsError;
use crate::spmd::World;
use crate::train::{self, Outcome, TrainError, TrainRequest};
use anyhow::Result;
use std::io::Write;
use std::time::Duration;

/// All stages are complete.
pub const COMPLETE: i32 = 0;
/// Anything that is neither of the others.
pub const FAILED: i32 = 1;
/// Settings, data, a checkpoint or the command line are not as they must be.
pub const BAD_INPUT: i32 = 2;
/// A limit was reached or a signal arrived; the same command goes on from the checkpoint.
pub const STOPPED: i32 = 3;

/// The status that an error ends the program with.
pub fn exit_status(error: &anyhow::Error) -> i32 {
    let is_bad_input = error.chain().any(|cause| {
        cause.is::<SettingsError>()
            || cause.is::<DataError>()
            || cause.is::<UsageError>()
            || cause.downcast_ref::<BenchError>().is_some_and(BenchError::is_bad_input)
            || tools::is_bad_input(cause)
            || cause
                .downcast_ref::<CheckpointError>()
                .is_some_and(CheckpointError::is_bad_input)
            || matches!(cause.downcast_ref(), Some(NnError::Settings { .. }))
            || cause.downcast_ref::<TrainError>().is_some_and(TrainError::is_bad_input)
            || cause.downcast_ref::<JobsError>().is_some_and(JobsError::is_bad_input)
    });
    if is_bad_input {
        BAD_INPUT
    } else {
        FAILED
    }
}

/// Rank 0 speaks, on standard output, where Dingo's own lines go; the others only warn. `RUST_LOG` overrides this.
pub fn start_logging(rank: usize) {
    let default = if rank == 0 { "info" } else { "warn" };
    let mut builder = env_logger::Builder::from_env(env_logger::Env::default().default_filter_or(default));
    builder
        .target(env_logger::Target::Stdout)
        .format(move |out, record| match record.level() {
            log::Level::Info => writeln!(out, "{}", record.args()),
            level if rank == 0 => writeln!(out, "{level}: {}", record.args()),
            level => writeln!(out, "{level} (rank {rank}): {}", record.args()),
        });
    builder.init();
}

/// A file that grows beyond a limit is an error to be told with its name, not the end by a signal (as in Python).
pub fn ignore_file_size_signal() {
    // SAFETY: sets a signal's disposition, before other threads exist.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

/// Gives this rank its share of the node's cores for the network, unless `OMP_NUM_THREADS` says otherwise. Ranks that all
/// take every core would only wait for one another.
pub fn share_cores(ranks_on_node: usize) {
    if std::env::var_os("OMP_NUM_THREADS").is_some() {
        return;
    }
    // The cores this process may use: fewer than the node's where mpirun or the scheduler binds ranks to cores.
    let allowed = std::thread::available_parallelism().map_or(1, usize::from);
    let share = (cores_of_node() / ranks_on_node).max(1).min(allowed);
    tch::set_num_threads(share as i32);
}

/// Cores that are online on this node, whatever this process may use of them.
fn cores_of_node() -> usize {
    // SAFETY: a query without arguments in memory.
    let online = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
    usize::try_from(online).unwrap_or(1).max(1)
}

/// Trains, and runs the exit command when all is complete.
pub fn train(world: &World, arguments: &TrainArgs) -> Result<i32> {
    let train_dir = world.agree(arguments.resolve_train_dir().map_err(Into::into))?;
    let request = TrainRequest {
        settings: arguments.settings_path().map(Into::into),
        train_dir,
        checkpoint: arguments.checkpoint.clone(),
        interrupted_status: [STOPPED, FAILED],
    };
    match train::run(world, &request)? {
        Outcome::Complete => {
            log::info!("All training stages complete.");
            report_model(&request);
            if let (Some(command), true) = (&arguments.exit_command, world.is_root()) {
                run_exit_command(command);
            }
            Ok(COMPLETE)
        }
        Outcome::Tested => Ok(COMPLETE),
        Outcome::Stopped(reason) => {
            log::info!("Program terminated due to {reason}. The same command goes on.");
            Ok(STOPPED)
        }
    }
}

fn report_model(request: &TrainRequest) {
    let path = request.train_dir.join("model_latest.pt");
    log::info!(
        "The model is {0}. Open it in Dingo: build_model_from_kwargs(filename=\"{0}\", device=\"cpu\")",
        path.display()
    );
}

/// The training is complete whatever comes of the command, so a failure is only told.
fn run_exit_command(command: &str) {
    log::info!("Executing exit command: {command}.");
    match std::process::Command::new("sh").arg("-c").arg(command).status() {
        Ok(status) if status.success() => {}
        Ok(status) => log::warn!("the exit command ended with {status}"),
        Err(error) => log::warn!("the exit command could not be started: {error}"),
    }
}

/// Measures training steps, or with `--growth` what larger networks cost.
pub fn bench(world: &World, arguments: &BenchArgs) -> Result<i32> {
    let request = arguments.request();
    match arguments.growth {
        true => bench::growth(world, &request)?,
        false => drop(bench::run(world, &request)?),
    }
    Ok(COMPLETE)
}

/// Draws measurements. One rank is enough.
pub fn bench_plot(world: &World, arguments: &BenchPlotArgs) -> Result<i32> {
    let plot = || bench::plot(&arguments.tables, &arguments.output);
    world.agree(if world.is_root() { plot() } else { Ok(()) })?;
    Ok(COMPLETE)
}

/// Writes a dataset to measure with. One rank is enough.
pub fn bench_dataset(world: &World, arguments: &BenchDatasetArgs) -> Result<i32> {
    let write = || bench::dataset::write(&arguments.folder, &arguments.request());
    world.agree(if world.is_root() { write() } else { Ok(()) })?;
    Ok(COMPLETE)
}

/// Reports how fast one thread makes batches from the settings' data. Every rank measures; rank 0 speaks.
pub fn bench_data(world: &World, arguments: &BenchDataArgs) -> Result<i32> {
    let time = Duration::from_secs_f64(arguments.seconds);
    let measured = bench::data_pipeline(world, &arguments.settings, arguments.batch_size, time)?;
    log::info!("{measured}");
    Ok(COMPLETE)
}

/// Submits a training to a cluster.
pub fn submit(arguments: &SubmitArgs) -> Result<i32> {
    let scheduler = match arguments.scheduler {
        SchedulerName::Condor => Scheduler::Condor,
        SchedulerName::Slurm => Scheduler::Slurm,
    };
    let request = SubmitRequest {
        train_dir: arguments.train_dir.clone(),
        checkpoint: arguments.checkpoint.clone(),
        exit_command: arguments.exit_command.clone(),
        dry_run: arguments.dry_run,
    };
    jobs::submit(scheduler, &request)?;
    Ok(COMPLETE)
}
