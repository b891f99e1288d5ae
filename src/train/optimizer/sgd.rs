//! Stochastic gradient descent with momentum, in PyTorch's convention: the learning rate multiplies the momentum
//! buffer.

use super::rule::UpdateRule;
use crate::settings::Value;
use crate::torch_ext::{ElementUpdate, SgdOptions};
use crate::train::saved_state::SavedState;
use crate::train::TrainError;

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

    fn element(&self, lr: f64, updates: u64) -> ElementUpdate {
        // The first gradient enters whole: dampening only acts from the second on.
        let (keep, take) = match updates {
            1 => (0.0, 1.0),
            _ => (self.momentum, 1.0 - self.dampening),
        };
        ElementUpdate::Sgd(SgdOptions {
            lr,
            l2: self.weight_decay,
            keep,
            take,
            momentum: self.momentum,
            has_buffer: self.momentum != 0.0,
            nesterov: self.nesterov,
        })
    }
}
