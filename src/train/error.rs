//! The one error of this layer.

use std::path::{Path, PathBuf};

#[derive(Debug, thiserror::Error)]
pub enum TrainError {
    /// A checkpoint's optimizer, scheduler or early-stopping state does not fit. `key` is the dotted path in the
    /// checkpoint, such as `optimizer_state_dict.param_groups.0.betas`.
    #[error("{key}: {message}")]
    State { key: String, message: String },
    /// The history file is not one that this run may continue.
    #[error("{}: {message}", path.display())]
    History { path: PathBuf, message: String },
    /// What the command line names as train dir cannot be one.
    #[error("the train dir {}: {message}", path.display())]
    TrainDir { path: PathBuf, message: String },
    #[error("cannot {action} {}: {reason}", path.display())]
    Io {
        action: &'static str,
        path: PathBuf,
        /// Part of the message, and no `source()` that would be told a second time.
        reason: std::io::Error,
    },
    /// libtorch refused an operation, for want of memory for example.
    #[error(transparent)]
    Torch(#[from] tch::TchError),
}

impl TrainError {
    /// Whether a file that was handed in is at fault.
    pub fn is_bad_input(&self) -> bool {
        matches!(
            self,
            TrainError::State { .. } | TrainError::History { .. } | TrainError::TrainDir { .. }
        )
    }

    pub(super) fn state(key: impl Into<String>, message: impl Into<String>) -> TrainError {
        TrainError::State {
            key: key.into(),
            message: message.into(),
        }
    }

    /// For `map_err`: what was being done with which file.
    pub(super) fn io<'a>(action: &'static str, path: &'a Path) -> impl FnOnce(std::io::Error) -> TrainError + 'a {
        move |reason| TrainError::Io {
            action,
            path: path.to_owned(),
            reason,
        }
    }
}
