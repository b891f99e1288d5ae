//! Stages, epochs, optimizer, scheduler, limits, history.

mod checkpoint_paths;
mod early_stopping;
mod error;
mod history;
mod loss_info;
mod optimizer;
mod runtime_limits;
mod saved_state;
mod scheduler;

pub use checkpoint_paths::CheckpointPaths;
pub use early_stopping::EarlyStopping;
pub use error::TrainError;
pub use history::History;
pub use loss_info::{EpochInfo, LossInfo, Phase, PrintEvery};
pub use optimizer::Optimizer;
pub use runtime_limits::RuntimeLimits;
pub use scheduler::Scheduler;
