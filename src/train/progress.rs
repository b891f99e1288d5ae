//! Where a run stands: in which stage, after how many of its epochs and of the next epoch's batches.

use crate::checkpoint::{Checkpoint, Object};
use crate::settings::StageSettings;

/// The next epoch to complete is number `epoch_in_stage + 1` of stage `stage`; `stage == stages.len()` when all are done.
///
/// Dingo derives this from the number of epochs alone. That is not enough where early stopping ends a stage before its last
/// epoch, or inside an epoch, so it is recorded in the checkpoint, under `spmd`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Progress {
    pub stage: usize,
    /// Epochs of the stage that are complete: trained and tested.
    pub epoch_in_stage: usize,
    /// Batches of the next one that were trained on.
    pub batches: usize,
}

impl Progress {
    /// What Dingo would take `completed_epochs` to mean: every earlier stage ran all its epochs.
    pub fn from_epochs(completed_epochs: u64, stages: &[StageSettings]) -> Progress {
        Progress::from_stage_lengths(completed_epochs, stages.iter().map(|stage| stage.epochs))
    }

    /// The same from the number of epochs of each stage.
    pub fn from_stage_lengths(completed_epochs: u64, epochs: impl IntoIterator<Item = usize>) -> Progress {
        let mut left = completed_epochs as usize;
        let mut stages = 0;
        for epochs in epochs {
            if left < epochs {
                return Progress {
                    stage: stages,
                    epoch_in_stage: left,
                    batches: 0,
                };
            }
            left -= epochs;
            stages += 1;
        }
        Progress {
            stage: stages,
            ..Progress::default()
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

    /// Whether some of the stage was trained, but not all.
    pub fn is_inside_stage(self) -> bool {
        self.epoch_in_stage > 0 || self.batches > 0
    }

    /// Stages that at least one batch was trained in.
    pub fn stages_begun(self) -> usize {
        self.stage + usize::from(self.is_inside_stage())
    }

    /// After one more epoch; `stage_over` when early stopping ends the stage with it.
    pub fn after_epoch(self, stages: &[StageSettings], stage_over: bool) -> Progress {
        let done = self.epoch_in_stage + 1;
        if stage_over || done >= stages[self.stage].epochs {
            Progress {
                stage: self.stage + 1,
                ..Progress::default()
            }
        } else {
            Progress {
                stage: self.stage,
                epoch_in_stage: done,
                batches: 0,
            }
        }
    }

    pub fn to_object(self) -> Object {
        Object::dict([
            ("stage", self.stage as u64),
            ("epoch_in_stage", self.epoch_in_stage as u64),
            ("batches", self.batches as u64),
        ])
    }

    /// `None` when `object` is not what [`Progress::to_object`] writes.
    pub fn from_object(object: &Object) -> Option<Progress> {
        let entry = |name: &str| object.get(name)?.as_u64().map(|n| n as usize);
        Some(Progress {
            stage: entry("stage")?,
            epoch_in_stage: entry("epoch_in_stage")?,
            batches: entry("batches").unwrap_or(0),
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

    fn at(stage: usize, epoch_in_stage: usize, batches: usize) -> Progress {
        Progress {
            stage,
            epoch_in_stage,
            batches,
        }
    }

    #[test]
    fn epochs_alone_mean_what_they_mean_to_dingo() {
        let after = |epochs| Progress::from_epochs(epochs, &stages());
        let expected = [at(0, 0, 0), at(0, 1, 0), at(1, 0, 0), at(2, 0, 0), at(2, 0, 0)];
        assert_eq!([0, 1, 2, 3, 9].map(after), expected);
    }

    #[test]
    fn early_stopping_goes_to_the_next_stage() {
        let stages = stages();
        let first = Progress::default().after_epoch(&stages, false);
        assert_eq!(first, at(0, 1, 0));
        assert_eq!(first.after_epoch(&stages, false), at(1, 0, 0));
        assert_eq!(Progress::default().after_epoch(&stages, true), at(1, 0, 0));
        assert_eq!(at(0, 0, 17).after_epoch(&stages, false), at(0, 1, 0));
    }

    #[test]
    fn a_stage_is_begun_with_its_first_batch() {
        let begun = [at(0, 0, 0), at(0, 0, 1), at(0, 1, 0), at(1, 0, 0), at(1, 0, 3)].map(Progress::stages_begun);
        assert_eq!(begun, [0, 1, 1, 1, 2]);
    }

    #[test]
    fn a_checkpoint_keeps_it() {
        let progress = at(1, 7, 23);
        assert_eq!(Progress::from_object(&progress.to_object()), Some(progress));
        assert_eq!(Progress::from_object(&Object::None), None);
    }
}
