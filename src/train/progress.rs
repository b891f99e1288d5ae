//! Where a run stands: in which stage, after how many of its epochs.

use crate::checkpoint::{Checkpoint, Object};
use crate::settings::StageSettings;

/// The next epoch to train is number `epoch_in_stage + 1` of stage `stage`; `stage == stages.len()` when all are done.
///
/// Dingo derives this from the number of epochs alone. That is not enough where early stopping ends a stage before its last
/// epoch, so it is recorded in the checkpoint, under `spmd`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Progress {
    pub stage: usize,
    pub epoch_in_stage: usize,
}

impl Progress {
    /// What Dingo would take `completed_epochs` to mean: every earlier stage ran all its epochs.
    pub fn from_epochs(completed_epochs: u64, stages: &[StageSettings]) -> Progress {
        let mut left = completed_epochs as usize;
        for (stage, settings) in stages.iter().enumerate() {
            if left < settings.epochs {
                return Progress {
                    stage,
                    epoch_in_stage: left,
                };
            }
            left -= settings.epochs;
        }
        Progress {
            stage: stages.len(),
            epoch_in_stage: 0,
        }
    }

    /// From what the checkpoint records, or, when Dingo wrote it, from its epoch.
    pub fn of(checkpoint: &Checkpoint, stages: &[StageSettings]) -> Progress {
        let recorded = checkpoint
            .spmd
            .as_ref()
            .and_then(|spmd| Progress::from_object(spmd.get("progress")?));
        recorded.unwrap_or_else(|| Progress::from_epochs(checkpoint.epoch, stages))
    }

    /// Stages that at least one epoch was trained in.
    pub fn stages_begun(self) -> usize {
        self.stage + usize::from(self.epoch_in_stage > 0)
    }

    /// After one more epoch; `stage_over` when early stopping ends the stage with it.
    pub fn after_epoch(self, stages: &[StageSettings], stage_over: bool) -> Progress {
        let done = self.epoch_in_stage + 1;
        if stage_over || done >= stages[self.stage].epochs {
            Progress {
                stage: self.stage + 1,
                epoch_in_stage: 0,
            }
        } else {
            Progress {
                epoch_in_stage: done,
                ..self
            }
        }
    }

    pub fn to_object(self) -> Object {
        Object::dict([
            ("stage", self.stage as u64),
            ("epoch_in_stage", self.epoch_in_stage as u64),
        ])
    }

    /// `None` when `object` is not what [`Progress::to_object`] writes.
    pub fn from_object(object: &Object) -> Option<Progress> {
        let entry = |name: &str| object.get(name)?.as_u64().map(|n| n as usize);
        Some(Progress {
            stage: entry("stage")?,
            epoch_in_stage: entry("epoch_in_stage")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Settings;

    fn stages() -> Vec<StageSettings> {
        let case = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases/npe/train_settings.yaml");
        Settings::load(&case).expect("the case's settings").train.stages // 2 epochs, then 1
    }

    #[test]
    fn epochs_alone_mean_what_they_mean_to_dingo() {
        let at = |epochs| Progress::from_epochs(epochs, &stages());
        assert_eq!(
            at(0),
            Progress {
                stage: 0,
                epoch_in_stage: 0
            }
        );
        assert_eq!(
            at(1),
            Progress {
                stage: 0,
                epoch_in_stage: 1
            }
        );
        assert_eq!(
            at(2),
            Progress {
                stage: 1,
                epoch_in_stage: 0
            }
        );
        assert_eq!(
            at(3),
            Progress {
                stage: 2,
                epoch_in_stage: 0
            }
        );
        assert_eq!(
            at(9),
            Progress {
                stage: 2,
                epoch_in_stage: 0
            }
        );
    }

    #[test]
    fn early_stopping_goes_to_the_next_stage() {
        let stages = stages();
        let first = Progress::default().after_epoch(&stages, false);
        assert_eq!(
            first,
            Progress {
                stage: 0,
                epoch_in_stage: 1
            }
        );
        assert_eq!(
            first.after_epoch(&stages, false),
            Progress {
                stage: 1,
                epoch_in_stage: 0
            }
        );
        assert_eq!(
            Progress::default().after_epoch(&stages, true),
            Progress {
                stage: 1,
                epoch_in_stage: 0
            }
        );
    }

    #[test]
    fn a_checkpoint_keeps_it() {
        let progress = Progress {
            stage: 1,
            epoch_in_stage: 7,
        };
        assert_eq!(Progress::from_object(&progress.to_object()), Some(progress));
        assert_eq!(Progress::from_object(&Object::None), None);
    }
}
