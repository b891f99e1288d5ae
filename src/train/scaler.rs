//! Loss scaling for short floating-point types (Micikevicius et al. 2018, arXiv:1710.03740, section 3.2), with the rules and
//! the state of `torch.amp.GradScaler`.

use super::saved_state::{dictionary, SavedState};
use super::TrainError;
use crate::settings::Value;

/// PyTorch's defaults.
const INITIAL_SCALE: f64 = 65536.0;
const GROWTH_FACTOR: f64 = 2.0;
const BACKOFF_FACTOR: f64 = 0.5;
const GROWTH_INTERVAL: u64 = 2000;

/// The loss is multiplied by a power of two, so that small gradients do not vanish in half precision, and the gradient
/// divided by it. The scale halves when the gradient overflows, and doubles after a long time without.
#[derive(Debug, Clone, PartialEq)]
pub struct GradScaler {
    enabled: bool,
    scale: f64,
    growth_factor: f64,
    backoff_factor: f64,
    growth_interval: u64,
    /// Steps since the scale changed.
    growth_tracker: u64,
}

impl GradScaler {
    /// One that is not enabled keeps the scale 1.
    pub fn new(enabled: bool) -> GradScaler {
        GradScaler {
            enabled,
            scale: if enabled { INITIAL_SCALE } else { 1.0 },
            growth_factor: GROWTH_FACTOR,
            backoff_factor: BACKOFF_FACTOR,
            growth_interval: GROWTH_INTERVAL,
            growth_tracker: 0,
        }
    }

    /// What to multiply the loss by.
    pub fn scale(&self) -> f64 {
        self.scale
    }

    /// Steps since the scale changed.
    pub(super) fn growth_tracker(&self) -> u64 {
        self.growth_tracker
    }

    /// Growth and backoff factor, and the growth interval, of one that is enabled: what a device needs to do the same.
    pub(super) fn rule(&self) -> Option<([f64; 2], i64)> {
        let factors = [self.growth_factor, self.backoff_factor];
        self.enabled.then_some((factors, self.growth_interval as i64))
    }

    /// After each step, made or not: whether its gradient was finite. The ranks' reduced gradients are the same, so their
    /// scales stay the same too.
    pub fn update(&mut self, finite: bool) {
        if !self.enabled {
            return;
        }
        if !finite {
            self.scale *= self.backoff_factor;
            self.growth_tracker = 0;
            return;
        }
        self.growth_tracker += 1;
        if self.growth_tracker == self.growth_interval {
            // As in PyTorch, a scale that single precision cannot hold is not taken.
            let grown = self.scale * self.growth_factor;
            if (grown as f32).is_finite() {
                self.scale = grown;
            }
            self.growth_tracker = 0;
        }
    }

    /// PyTorch's `state_dict`: empty when not enabled.
    pub fn state(&self) -> Value {
        if !self.enabled {
            return dictionary([]);
        }
        dictionary([
            ("scale", self.scale.into()),
            ("growth_factor", self.growth_factor.into()),
            ("backoff_factor", self.backoff_factor.into()),
            ("growth_interval", self.growth_interval.into()),
            ("_growth_tracker", self.growth_tracker.into()),
        ])
    }

    /// Takes over such a state; an empty one, of a scaler that was not enabled, is left aside, as is any by one that is not.
    ///
    /// # Errors
    /// A value that is missing or of another type.
    pub fn load_state(&mut self, path: &str, state: &Value) -> Result<(), TrainError> {
        let is_empty = state.as_mapping().is_some_and(|state| state.is_empty());
        if !self.enabled || is_empty {
            return Ok(());
        }
        let saved = SavedState::from_value(path, state)?;
        *self = GradScaler {
            enabled: true,
            scale: saved.float("scale")?,
            growth_factor: saved.float("growth_factor")?,
            backoff_factor: saved.float("backoff_factor")?,
            growth_interval: saved.count("growth_interval")?,
            growth_tracker: saved.count("_growth_tracker")?,
        };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What PyTorch's `GradScaler` does with `growth_interval` 3 and the same sequence of steps.
    #[test]
    fn the_scale_follows_pytorchs() {
        let mut scaler = GradScaler {
            growth_interval: 3,
            ..GradScaler::new(true)
        };
        let steps = [true, true, false, true, true, true, true, false, false];
        let scales = steps.map(|finite| {
            scaler.update(finite);
            scaler.scale()
        });
        assert_eq!(
            scales,
            [65536.0, 65536.0, 32768.0, 32768.0, 32768.0, 65536.0, 65536.0, 32768.0, 16384.0]
        );
    }

    #[test]
    fn state_has_pytorchs_names_and_survives() {
        let mut scaler = GradScaler::new(true);
        scaler.update(false);
        scaler.update(true);
        let state = scaler.state();
        let names: Vec<&str> = state.as_mapping().unwrap().keys().filter_map(Value::as_str).collect();
        assert_eq!(
            names,
            [
                "scale",
                "growth_factor",
                "backoff_factor",
                "growth_interval",
                "_growth_tracker"
            ]
        );
        let mut restored = GradScaler::new(true);
        restored.load_state("spmd.scaler", &state).unwrap();
        assert_eq!(restored, scaler);

        let mut off = GradScaler::new(false);
        off.update(false);
        off.load_state("spmd.scaler", &state).unwrap();
        assert_eq!((off.scale(), off.state()), (1.0, dictionary([])));
        restored.load_state("spmd.scaler", &off.state()).unwrap();
        assert_eq!(restored, scaler);
        let error = restored
            .load_state("spmd.scaler", &dictionary([("scale", 1.0.into())]))
            .unwrap_err();
        assert!(
            error.to_string().starts_with("spmd.scaler.growth_factor: is missing"),
            "{error}"
        );
    }
}
