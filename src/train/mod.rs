//! Stages, epochs, optimizer, scheduler, limits, history.
//!
//! [`run`] is a training from its settings to its last checkpoint: [`Start`] reads what the user wrote and what an earlier
//! run left, `prepare` opens the data and builds the network, [`Session`] trains stage by stage, `step` is the algorithm,
//! `snapshot` turns a moment into files.

mod append_stage;
mod basis_cache;
mod check;
mod checkpoint_paths;
mod communication;
mod corpus;
mod early_stopping;
mod epoch;
mod error;
mod history;
mod interrupts;
mod late_steps;
mod loss_info;
mod matrix_library;
mod noise_scale;
mod optimizer;
mod part_norms;
mod precision;
mod prepare;
mod progress;
mod replicas;
mod running_statistics;
mod runtime_limits;
mod saved_state;
mod scaler;
mod scheduler;
mod seeding;
mod session;
mod signals;
mod skipped_steps;
mod snapshot;
mod stage_checks;
mod stage_state;
mod stage_tools;
mod start;
mod step;
mod stepper;
mod train_dir;
mod writer;

pub use append_stage::{append_stage, AppendRequest, NewPlan};
pub use check::{
    check, CheckReport, CheckRequest, DataPlan, DiskNeed, MemoryEstimate, NetworkPlan, Plan, ResumePoint, StagePlan,
};
pub use checkpoint_paths::CheckpointPaths;
pub use corpus::{Corpus, StageLoaders};
pub use early_stopping::EarlyStopping;
pub use epoch::{test_epoch, train_epoch, EpochEnd, Training};
pub use error::TrainError;
pub use history::History;
pub use interrupts::{Interrupt, Interrupts, StopReason};
pub use late_steps::LateSteps;
pub use loss_info::{EpochInfo, LossInfo, Phase, PrintEvery, PHASES};
pub use matrix_library::choose as choose_matrix_library;
pub use noise_scale::{Estimate, GradientNorms, NoiseScale};
pub use optimizer::Optimizer;
pub use part_norms::PartNorms;
pub use precision::Precision;
pub use prepare::build_context;
pub use progress::Progress;
pub use replicas::compare_replicas;
pub use running_statistics::RunningStatistics;
pub use runtime_limits::RuntimeLimits;
pub use scaler::GradScaler;
pub use scheduler::Scheduler;
pub use session::{Outcome, Session, DATA_THREADS};
pub use start::{Start, TrainRequest};
pub use step::{begin_step, train_step, BegunStep, StepClock, StepEnd, StepPart};
pub use stepper::Stepper;

use crate::data::DataError;
use crate::nn::NnError;
use crate::settings::SettingsError;
use crate::spmd::{abort_job, World};
use anyhow::{Context, Result};
use signals::Signals;
use std::path::Path;
use std::time::{Duration, Instant};

/// Trains what `request` asks for until all stages are complete, a limit is reached or a signal arrives. All ranks call this
/// together, once in a process.
///
/// # Errors
/// Bad settings or data (all ranks agree on them, and nothing is written), and whatever stops a training.
pub fn run(world: &World, request: &TrainRequest) -> Result<Outcome> {
    let started = Instant::now();
    let signals = listen(world, request)?;
    let prepared = tell_once(world, || {
        let start = world.agree(Start::read(request))?;
        if start.is_complete() {
            return Ok(None);
        }
        Session::prepare(world, start, &request.train_dir, signals, started).map(Some)
    });
    match prepared? {
        Some(mut session) => session.train(),
        None => Ok(Outcome::Complete),
    }
}

/// For a phase in which all ranks find the same: rank 0 alone warns of it.
fn tell_once<T>(world: &World, phase: impl FnOnce() -> T) -> T {
    let level = log::max_level();
    if !world.is_root() {
        log::set_max_level(log::LevelFilter::Error);
    }
    let result = phase();
    log::set_max_level(level);
    result
}

/// Puts the file that settings came from in front of an error about one of their keys.
fn in_file<T, E: Into<anyhow::Error>>(settings_file: &Path, result: Result<T, E>) -> Result<T> {
    result.map_err(|error| {
        let error: anyhow::Error = error.into();
        let names_only_a_key = matches!(error.downcast_ref(), Some(SettingsError::Key { .. }))
            || matches!(error.downcast_ref(), Some(DataError::Setting { .. }))
            || matches!(error.downcast_ref(), Some(NnError::Settings { .. }));
        match names_only_a_key {
            true => error.context(settings_file.display().to_string()),
            false => error,
        }
    })
}

/// Signals from the beginning on. One that comes before there is anything to save ends the job at once, with the status
/// `request` names for it.
fn listen(world: &World, request: &TrainRequest) -> Result<Signals> {
    let (who, is_root) = (world.who(), world.is_root());
    let checkpoint = request.checkpoint.clone().unwrap_or_else(|| request.latest());
    let [stopped, failed] = request.interrupted_status;
    let end = move |signal| {
        if !is_root {
            // mpirun hands a signal to all ranks, and rank 0 speaks for them. This one speaks if it was meant alone.
            std::thread::sleep(Duration::from_secs(1));
        }
        let signal = signals::name(signal);
        let (status, what) = match checkpoint.exists() {
            true => (
                stopped,
                format!("the same command goes on from {}", checkpoint.display()),
            ),
            false => (
                failed,
                "there is nothing to save yet, and the same command starts anew".into(),
            ),
        };
        eprintln!("Stop run: {signal} received by {who} before training began; {what}.");
        abort_job(status)
    };
    Signals::listen(end).context("cannot listen for signals")
}
