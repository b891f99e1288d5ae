//! Adagrad (Duchi, Hazan & Singer 2011).

use super::rule::UpdateRule;
use crate::settings::Value;
use crate::torch_ext::{AdagradOptions, ElementUpdate};
use crate::train::saved_state::SavedState;
use crate::train::TrainError;

#[derive(Debug, Clone)]
pub(super) struct Adagrad {
    pub lr_decay: f64,
    pub weight_decay: f64,
    pub initial_accumulator_value: f64,
    pub eps: f64,
}

impl UpdateRule for Adagrad {
    fn slots(&self) -> Vec<&'static str> {
        vec!["sum"]
    }

    fn starts_with_state(&self) -> bool {
        true
    }

    fn initial_value(&self) -> f64 {
        self.initial_accumulator_value
    }

    fn options(&self) -> Vec<(&'static str, Value)> {
        vec![
            ("lr_decay", self.lr_decay.into()),
            ("eps", self.eps.into()),
            ("weight_decay", self.weight_decay.into()),
            ("initial_accumulator_value", self.initial_accumulator_value.into()),
            ("foreach", Value::Null),
            ("maximize", false.into()),
            ("differentiable", false.into()),
            ("fused", Value::Null),
        ]
    }

    fn with_options(&self, saved: &SavedState) -> Result<Box<dyn UpdateRule>, TrainError> {
        Ok(Box::new(Adagrad {
            lr_decay: saved.float("lr_decay")?,
            weight_decay: saved.float("weight_decay")?,
            initial_accumulator_value: saved.float("initial_accumulator_value")?,
            eps: saved.float("eps")?,
        }))
    }

    fn element(&self, lr: f64, updates: u64) -> ElementUpdate {
        let earlier_updates = (updates - 1) as f64;
        ElementUpdate::Adagrad(AdagradOptions {
            lr: lr / (1.0 + earlier_updates * self.lr_decay),
            eps: self.eps,
            l2: self.weight_decay,
        })
    }
}
