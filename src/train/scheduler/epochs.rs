//! What the schedules that depend on nothing but the epoch have in common (PyTorch's `LRScheduler`).

use crate::settings::Value;
use crate::train::saved_state::SavedState;
use crate::train::TrainError;

#[derive(Debug, Clone)]
pub(super) struct EpochCount {
    pub base_lr: f64,
    /// Epochs completed.
    pub last_epoch: u64,
    /// PyTorch counts the step that its constructor takes.
    pub step_count: u64,
    pub last_lr: f64,
}

impl EpochCount {
    pub fn new(initial_lr: f64) -> EpochCount {
        EpochCount {
            base_lr: initial_lr,
            last_epoch: 0,
            step_count: 1,
            last_lr: initial_lr,
        }
    }

    pub fn advance(&mut self) {
        self.last_epoch += 1;
        self.step_count += 1;
    }

    /// The keys after a schedule's own options, in PyTorch's order.
    pub fn state(&self) -> [(&'static str, Value); 6] {
        [
            ("base_lrs", vec![self.base_lr].into()),
            ("last_epoch", self.last_epoch.into()),
            ("_step_count", self.step_count.into()),
            ("_is_initial", false.into()),
            ("_get_lr_called_within_step", false.into()),
            ("_last_lr", vec![self.last_lr].into()),
        ]
    }

    pub fn from_state(saved: &SavedState) -> Result<EpochCount, TrainError> {
        let [base_lr] = saved.floats("base_lrs")?;
        let [last_lr] = saved.floats("_last_lr")?;
        Ok(EpochCount {
            base_lr,
            last_epoch: saved.count("last_epoch")?,
            step_count: saved.count("_step_count")?,
            last_lr,
        })
    }
}
