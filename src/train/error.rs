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
    /// The checkpoints of a run will not fit.
    #[error("the train dir {}: {message}", path.display())]
    DiskSpace { path: PathBuf, message: String },
    #[error("cannot {action} {}: {reason}", path.display())]
    Io {
        action: &'static str,
        path: PathBuf,
        /// Part of the message, and no `source()` that would be told a second time.
        reason: std::io::Error,
    },
    /// Loss or gradient has not been finite for too many steps in a row. `checkpoint`: the last good one.
    #[error(
        "{steps} optimizer steps in a row were skipped (local.max_skipped_steps), the last one because {what}; {}",
        last_good(checkpoint)
    )]
    Diverged {
        steps: u64,
        what: &'static str,
        checkpoint: Option<PathBuf>,
    },
    /// The ranks no longer hold the same network; `groups` of ranks that agree with one another.
    #[error(
        "the ranks no longer hold the same network, bit by bit: {groups}. Of these groups at least one computes wrongly; \
         the checkpoints of earlier epochs are good"
    )]
    ReplicasDiffer { groups: String },
    /// libtorch refused an operation, for want of memory for example.
    #[error(transparent)]
    Torch(#[from] tch::TchError),
    #[error(transparent)]
    TorchExt(#[from] crate::torch_ext::TorchExtError),
}

impl TrainError {
    /// Whether a file that was handed in is at fault.
    pub fn is_bad_input(&self) -> bool {
        matches!(
            self,
            TrainError::State { .. }
                | TrainError::History { .. }
                | TrainError::TrainDir { .. }
                | TrainError::DiskSpace { .. }
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

fn last_good(checkpoint: &Option<PathBuf>) -> String {
    match checkpoint {
        Some(path) => format!("the last good checkpoint is {}", path.display()),
        None => "there is no checkpoint yet".into(),
    }
}
