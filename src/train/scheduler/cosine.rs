//! `cosine`: half a cosine wave from the initial rate down to `eta_min` in `T_max` epochs, and up again after them
//! (PyTorch's CosineAnnealingLR; Loshchilov & Hutter, arXiv:1608.03983, without restarts).

use super::epochs::EpochCount;
use crate::settings::Value;
use crate::train::saved_state::{dictionary, int_if_whole, SavedState};
use crate::train::TrainError;
use std::f64::consts::PI;

#[derive(Debug)]
pub(super) struct CosineAnnealing {
    t_max: f64,
    eta_min: f64,
    epochs: EpochCount,
}

impl CosineAnnealing {
    pub fn new(t_max: f64, eta_min: f64, initial_lr: f64) -> CosineAnnealing {
        CosineAnnealing {
            t_max,
            eta_min,
            epochs: EpochCount::new(initial_lr),
        }
    }

    /// The next rate. PyTorch computes it from the present one by the ratio of two cosines; the order of operations is
    /// its own, so that the rates agree to the last bit.
    pub fn step(&mut self, lr: f64) -> f64 {
        self.epochs.advance();
        let (t_max, eta_min, base_lr) = (self.t_max, self.eta_min, self.epochs.base_lr);
        let epoch = self.epochs.last_epoch as f64;
        self.epochs.last_lr = if self.epochs.step_count == 1 {
            // A state whose count of steps was reset: the closed form.
            eta_min + (base_lr - eta_min) * (1.0 + (epoch * PI / t_max).cos()) / 2.0
        } else if (epoch - 1.0 - t_max) % (2.0 * t_max) == 0.0 {
            // The last epoch was at the minimum, where the ratio below divides by zero.
            lr + (base_lr - eta_min) * (1.0 - (PI / t_max).cos()) / 2.0
        } else {
            (1.0 + (PI * epoch / t_max).cos()) / (1.0 + (PI * (epoch - 1.0) / t_max).cos()) * (lr - eta_min) + eta_min
        };
        self.epochs.last_lr
    }

    pub fn state(&self) -> Value {
        let options = [("T_max", int_if_whole(self.t_max)), ("eta_min", self.eta_min.into())];
        dictionary(options.into_iter().chain(self.epochs.state()))
    }

    pub fn from_state(saved: &SavedState) -> Result<CosineAnnealing, TrainError> {
        Ok(CosineAnnealing {
            t_max: saved.float("T_max")?,
            eta_min: saved.float("eta_min")?,
            epochs: EpochCount::from_state(saved)?,
        })
    }
}
