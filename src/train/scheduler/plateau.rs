//! `reduce_on_plateau`: the rate falls by `factor` when the test loss has not improved for more than `patience` epochs
//! (PyTorch's ReduceLROnPlateau).

use super::PATH;
use crate::settings::{SchedulerSettings, Value};
use crate::train::saved_state::{dictionary, SavedState};
use crate::train::TrainError;

#[derive(Debug)]
pub(super) struct ReduceOnPlateau {
    factor: f64,
    min_lr: f64,
    patience: u64,
    cooldown: u64,
    eps: f64,
    threshold: f64,
    threshold_relative: bool,
    maximize: bool,
    last_epoch: u64,
    last_lr: f64,
    best: f64,
    cooldown_counter: u64,
    num_bad_epochs: u64,
}

impl ReduceOnPlateau {
    /// `settings` are those of `reduce_on_plateau`.
    pub fn new(settings: &SchedulerSettings, lr: f64) -> ReduceOnPlateau {
        let SchedulerSettings::ReduceOnPlateau {
            factor,
            patience,
            threshold,
            threshold_relative,
            cooldown,
            min_lr,
            eps,
            maximize,
        } = *settings
        else {
            unreachable!("the caller matched on the kind of scheduler")
        };
        ReduceOnPlateau {
            factor,
            min_lr,
            patience,
            cooldown,
            eps,
            threshold,
            threshold_relative,
            maximize,
            last_epoch: 0,
            last_lr: lr,
            best: worst(maximize),
            cooldown_counter: 0,
            num_bad_epochs: 0,
        }
    }

    /// The rate for the next epoch, after one with this `loss`. NaN is never an improvement.
    pub fn step(&mut self, lr: f64, loss: f64) -> f64 {
        self.last_epoch += 1;
        if self.is_better(loss) {
            self.best = loss;
            self.num_bad_epochs = 0;
        } else {
            self.num_bad_epochs += 1;
        }
        if self.cooldown_counter > 0 {
            self.cooldown_counter -= 1;
            self.num_bad_epochs = 0;
        }
        self.last_lr = lr;
        if self.num_bad_epochs > self.patience {
            let reduced = (lr * self.factor).max(self.min_lr);
            if lr - reduced > self.eps {
                self.last_lr = reduced;
            }
            self.cooldown_counter = self.cooldown;
            self.num_bad_epochs = 0;
        }
        self.last_lr
    }

    fn is_better(&self, loss: f64) -> bool {
        match (self.maximize, self.threshold_relative) {
            (false, true) => loss < self.best * (1.0 - self.threshold),
            (false, false) => loss < self.best - self.threshold,
            (true, true) => loss > self.best * (self.threshold + 1.0),
            (true, false) => loss > self.best + self.threshold,
        }
    }

    pub fn state(&self) -> Value {
        let mode = if self.maximize { "max" } else { "min" };
        let threshold_mode = if self.threshold_relative { "rel" } else { "abs" };
        dictionary([
            ("factor", self.factor.into()),
            ("default_min_lr", self.min_lr.into()),
            ("min_lrs", vec![self.min_lr].into()),
            ("patience", self.patience.into()),
            ("cooldown", self.cooldown.into()),
            ("eps", self.eps.into()),
            ("last_epoch", self.last_epoch.into()),
            ("_last_lr", vec![self.last_lr].into()),
            ("mode_worse", worst(self.maximize).into()),
            ("mode", mode.into()),
            ("threshold", self.threshold.into()),
            ("threshold_mode", threshold_mode.into()),
            ("best", self.best.into()),
            ("cooldown_counter", self.cooldown_counter.into()),
            ("num_bad_epochs", self.num_bad_epochs.into()),
        ])
    }

    pub fn from_state(saved: &SavedState) -> Result<ReduceOnPlateau, TrainError> {
        let choice = |key: &str, yes: &str, no: &str| match saved.text(key)? {
            text if text == yes => Ok(true),
            text if text == no => Ok(false),
            text => {
                let message = format!("{text} is neither {yes} nor {no}");
                Err(TrainError::state(format!("{PATH}.{key}"), message))
            }
        };
        let [min_lr] = saved.floats("min_lrs")?;
        let [last_lr] = saved.floats("_last_lr")?;
        Ok(ReduceOnPlateau {
            factor: saved.float("factor")?,
            min_lr,
            patience: saved.count("patience")?,
            cooldown: saved.count("cooldown")?,
            eps: saved.float("eps")?,
            threshold: saved.float("threshold")?,
            threshold_relative: choice("threshold_mode", "rel", "abs")?,
            maximize: choice("mode", "max", "min")?,
            last_epoch: saved.count("last_epoch")?,
            last_lr,
            best: saved.float("best")?,
            cooldown_counter: saved.count("cooldown_counter")?,
            num_bad_epochs: saved.count("num_bad_epochs")?,
        })
    }
}

/// The loss that any other improves on.
fn worst(maximize: bool) -> f64 {
    if maximize {
        f64::NEG_INFINITY
    } else {
        f64::INFINITY
    }
}
