//! `step`: the rate is multiplied by `gamma` every `step_size` epochs (PyTorch's StepLR).

use super::epochs::EpochCount;
use super::PATH;
use crate::settings::Value;
use crate::train::saved_state::{dictionary, SavedState};
use crate::train::TrainError;

#[derive(Debug)]
pub(super) struct StepDecay {
    step_size: u64,
    gamma: f64,
    epochs: EpochCount,
}

impl StepDecay {
    pub fn new(step_size: u64, gamma: f64, initial_lr: f64) -> StepDecay {
        StepDecay {
            step_size,
            gamma,
            epochs: EpochCount::new(initial_lr),
        }
    }

    /// The next rate, from the present one rather than from the initial one, as in PyTorch.
    pub fn step(&mut self, lr: f64) -> f64 {
        self.epochs.advance();
        let decays = self.epochs.last_epoch % self.step_size == 0;
        self.epochs.last_lr = if decays { lr * self.gamma } else { lr };
        self.epochs.last_lr
    }

    pub fn state(&self) -> Value {
        let options = [("step_size", self.step_size.into()), ("gamma", self.gamma.into())];
        dictionary(options.into_iter().chain(self.epochs.state()))
    }

    pub fn from_state(saved: &SavedState) -> Result<StepDecay, TrainError> {
        let step_size = saved.count("step_size")?;
        if step_size == 0 {
            return Err(TrainError::state(format!("{PATH}.step_size"), "must be at least 1"));
        }
        Ok(StepDecay {
            step_size,
            gamma: saved.float("gamma")?,
            epochs: EpochCount::from_state(saved)?,
        })
    }
}
