//! Which checkpoint files a train directory holds, and when each is due.

use std::path::{Path, PathBuf};

/// Dingo's names inside a train directory.
#[derive(Debug, Clone)]
pub struct CheckpointPaths {
    train_dir: PathBuf,
    checkpoint_epochs: Option<u64>,
}

impl CheckpointPaths {
    /// `checkpoint_epochs`: a permanent checkpoint is kept every so many epochs; `None` keeps none.
    pub fn new(train_dir: &Path, checkpoint_epochs: Option<u64>) -> CheckpointPaths {
        CheckpointPaths {
            train_dir: train_dir.to_owned(),
            checkpoint_epochs,
        }
    }

    /// Written after every epoch; what a run is resumed from.
    pub fn latest(&self) -> PathBuf {
        self.train_dir.join("model_latest.pt")
    }

    /// The permanent checkpoint that is due after `epoch` completed epochs, a copy of the latest.
    pub fn permanent(&self, epoch: u64) -> Option<PathBuf> {
        let every = self.checkpoint_epochs.filter(|&every| every > 0)?;
        (epoch % every == 0).then(|| self.train_dir.join(format!("model_{epoch:03}.pt")))
    }

    /// Written when a stage is complete.
    pub fn stage(&self, stage: usize) -> PathBuf {
        self.train_dir.join(format!("model_stage_{stage}.pt"))
    }

    /// The network with the lowest loss, without training state; written under early stopping.
    pub fn best(&self) -> PathBuf {
        self.train_dir.join("best_model.pt")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_dingos() {
        let paths = CheckpointPaths::new(Path::new("run"), Some(10));
        assert_eq!(paths.latest(), Path::new("run/model_latest.pt"));
        assert_eq!(paths.permanent(9), None);
        assert_eq!(paths.permanent(10), Some(PathBuf::from("run/model_010.pt")));
        assert_eq!(paths.permanent(1230), Some(PathBuf::from("run/model_1230.pt")));
        assert_eq!(paths.stage(1), Path::new("run/model_stage_1.pt"));
        assert_eq!(paths.best(), Path::new("run/best_model.pt"));
        assert_eq!(CheckpointPaths::new(Path::new("run"), None).permanent(10), None);
    }
}
