//! Adagrad (Duchi, Hazan & Singer 2011).

use super::rule::{add_weight_decay, ParameterState, UpdateRule};
use crate::settings::Value;
use crate::train::saved_state::SavedState;
use crate::train::TrainError;
use tch::{TchError, Tensor};

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

    fn update(
        &self,
        lr: f64,
        parameter: &mut Tensor,
        gradient: &Tensor,
        state: &mut ParameterState,
    ) -> Result<(), TchError> {
        let gradient = add_weight_decay(gradient, parameter, self.weight_decay)?;
        let earlier_updates = (state.updates - 1) as f64;
        let lr = lr / (1.0 + earlier_updates * self.lr_decay);
        let [sum] = state.slots.as_mut_slice() else {
            unreachable!("slots() names one")
        };
        let _ = sum.f_addcmul_(&gradient, &gradient)?;
        let root = sum.f_sqrt()?.f_add_scalar_(self.eps)?;
        parameter.f_addcdiv_(&gradient.f_mul_scalar(-lr)?, &root).map(drop)
    }
}
