//! RMSprop (Hinton's lecture notes), centered as in Graves, arXiv:1308.0850.

use super::rule::UpdateRule;
use crate::settings::Value;
use crate::torch_ext::{ElementUpdate, RmsPropOptions};
use crate::train::saved_state::SavedState;
use crate::train::TrainError;

#[derive(Debug, Clone)]
pub(super) struct RmsProp {
    pub alpha: f64,
    pub eps: f64,
    pub weight_decay: f64,
    pub momentum: f64,
    pub centered: bool,
}

impl UpdateRule for RmsProp {
    fn slots(&self) -> Vec<&'static str> {
        let mut slots = vec!["square_avg"];
        if self.momentum > 0.0 {
            slots.push("momentum_buffer");
        }
        if self.centered {
            slots.push("grad_avg");
        }
        slots
    }

    fn options(&self) -> Vec<(&'static str, Value)> {
        vec![
            ("momentum", self.momentum.into()),
            ("alpha", self.alpha.into()),
            ("eps", self.eps.into()),
            ("centered", self.centered.into()),
            ("weight_decay", self.weight_decay.into()),
            ("capturable", false.into()),
            ("foreach", Value::Null),
            ("maximize", false.into()),
            ("differentiable", false.into()),
        ]
    }

    fn with_options(&self, saved: &SavedState) -> Result<Box<dyn UpdateRule>, TrainError> {
        Ok(Box::new(RmsProp {
            alpha: saved.float("alpha")?,
            eps: saved.float("eps")?,
            weight_decay: saved.float("weight_decay")?,
            momentum: saved.optional_float("momentum")?.unwrap_or(0.0),
            centered: saved.bool_or("centered", false)?,
        }))
    }

    fn element(&self, lr: f64, _updates: u64) -> ElementUpdate {
        ElementUpdate::RmsProp(RmsPropOptions {
            lr,
            alpha: self.alpha,
            eps: self.eps,
            l2: self.weight_decay,
            momentum: self.momentum,
            has_buffer: self.momentum > 0.0,
            centered: self.centered,
        })
    }
}
