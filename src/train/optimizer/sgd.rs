//! Stochastic gradient descent with momentum, in PyTorch's convention: the learning rate multiplies the momentum
//! buffer.

use super::rule::{add_weight_decay, ParameterState, UpdateRule};
use crate::settings::Value;
use crate::train::saved_state::SavedState;
use crate::train::TrainError;
use tch::{TchError, Tensor};

#[derive(Debug, Clone)]
pub(super) struct Sgd {
    pub momentum: f64,
    pub dampening: f64,
    pub weight_decay: f64,
    pub nesterov: bool,
}

impl UpdateRule for Sgd {
    fn slots(&self) -> Vec<&'static str> {
        if self.momentum == 0.0 {
            Vec::new()
        } else {
            vec!["momentum_buffer"]
        }
    }

    fn stores_step(&self) -> bool {
        false
    }

    fn options(&self) -> Vec<(&'static str, Value)> {
        vec![
            ("momentum", self.momentum.into()),
            ("dampening", self.dampening.into()),
            ("weight_decay", self.weight_decay.into()),
            ("nesterov", self.nesterov.into()),
            ("maximize", false.into()),
            ("foreach", Value::Null),
            ("differentiable", false.into()),
            ("fused", Value::Null),
        ]
    }

    fn with_options(&self, saved: &SavedState) -> Result<Box<dyn UpdateRule>, TrainError> {
        Ok(Box::new(Sgd {
            momentum: saved.float("momentum")?,
            dampening: saved.float("dampening")?,
            weight_decay: saved.float("weight_decay")?,
            nesterov: saved.bool_or("nesterov", false)?,
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
        let direction = match state.slots.first_mut() {
            None => gradient,
            Some(buffer) => {
                if state.updates == 1 {
                    // The first gradient enters whole: dampening only acts from the second on.
                    buffer.f_copy_(&gradient)?;
                } else {
                    let _ = buffer.f_mul_scalar_(self.momentum)?;
                    let _ = buffer.f_add_(&gradient.f_mul_scalar(1.0 - self.dampening)?)?;
                }
                if self.nesterov {
                    buffer.f_mul_scalar(self.momentum)?.f_add_(&gradient)?
                } else {
                    buffer.shallow_clone()
                }
            }
        };
        parameter.f_add_(&direction.f_mul_scalar(-lr)?).map(drop)
    }
}
