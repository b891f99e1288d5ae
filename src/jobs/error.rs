//! The one error of this layer.

use std::path::PathBuf;
use std::process::ExitStatus;

#[derive(Debug, thiserror::Error)]
pub enum JobsError {
    /// What is needed to begin or to go on is not in the train dir.
    #[error("the train dir {}: {message}", path.display())]
    TrainDir { path: PathBuf, message: String },
    #[error("{command} is not on PATH: is this a machine from which jobs are submitted?")]
    NoScheduler { command: String },
    /// It has told why itself.
    #[error("{command} did not take the job ({status})")]
    Refused { command: String, status: ExitStatus },
    #[error("cannot {action} {}: {reason}", path.display())]
    Io {
        action: &'static str,
        path: PathBuf,
        /// Part of the message, and no `source()` that would be told a second time.
        reason: std::io::Error,
    },
}

impl JobsError {
    /// Whether something that was handed in is at fault.
    pub fn is_bad_input(&self) -> bool {
        matches!(self, JobsError::TrainDir { .. })
    }
}
