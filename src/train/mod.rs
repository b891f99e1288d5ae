//! Stages, epochs, optimizer, scheduler, limits, history.
//!
//! [`run`] is a training from its settings to its last checkpoint: [`Start`] reads what the user wrote and what an earlier
//! run left, `prepare` opens the data and builds the network, [`Session`] trains stage by stage, `epoch` is the algorithm,
//! `snapshot` turns a moment into files.

mod checkpoint_paths;
mod corpus;
mod early_stopping;
mod epoch;
mod error;
mod history;
mod loss_info;
mod optimizer;
mod prepare;
mod progress;
mod runtime_limits;
mod saved_state;
mod scheduler;
mod seeding;
mod session;
mod snapshot;
mod start;

pub use checkpoint_paths::CheckpointPaths;
pub use corpus::{Corpus, StageLoaders};
pub use early_stopping::EarlyStopping;
pub use error::TrainError;
pub use history::History;
pub use loss_info::{EpochInfo, LossInfo, Phase, PrintEvery};
pub use optimizer::Optimizer;
pub use progress::Progress;
pub use runtime_limits::RuntimeLimits;
pub use scheduler::Scheduler;
pub use session::{Outcome, Session};
pub use start::{Start, TrainRequest};

use crate::spmd::World;
use anyhow::Result;
use std::time::Instant;

/// Trains what `request` asks for until all stages are complete or a limit is reached. All ranks call this together.
///
/// # Errors
/// Bad settings or data (all ranks agree on them, and nothing is written), and whatever stops a training.
pub fn run(world: &World, request: &TrainRequest) -> Result<Outcome> {
    let started = Instant::now();
    let start = world.agree(Start::read(request))?;
    if start.is_complete() {
        return Ok(Outcome::Complete);
    }
    let mut session = Session::prepare(world, start, &request.train_dir, started)?;
    session.train()
}
