//! Stages, epochs, optimizer, scheduler, limits, history.

mod error;
mod optimizer;
mod saved_state;
mod scheduler;

pub use error::TrainError;
pub use optimizer::Optimizer;
pub use scheduler::Scheduler;
