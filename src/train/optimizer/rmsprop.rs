//! RMSprop (Hinton's lecture notes), centered as in Graves, arXiv:1308.0850.

use super::rule::{add_weight_decay, ParameterState, UpdateRule};
use crate::settings::Value;
use crate::train::saved_state::SavedState;
use crate::train::TrainError;
use tch::{TchError, Tensor};

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

    fn update(
        &self,
        lr: f64,
        parameter: &mut Tensor,
        gradient: &Tensor,
        state: &mut ParameterState,
    ) -> Result<(), TchError> {
        let gradient = add_weight_decay(gradient, parameter, self.weight_decay)?;
        let Some((square_avg, others)) = state.slots.split_first_mut() else {
            unreachable!("slots() names square_avg first")
        };
        let _ = square_avg.f_mul_scalar_(self.alpha)?;
        let _ = square_avg.f_addcmul_(&gradient.f_mul_scalar(1.0 - self.alpha)?, &gradient)?;

        let mut average = match others.last_mut().filter(|_| self.centered) {
            Some(grad_avg) => {
                let _ = grad_avg.f_lerp_(&gradient, 1.0 - self.alpha)?;
                square_avg.f_addcmul(&grad_avg.f_neg()?, grad_avg)?.f_sqrt_()?
            }
            None => square_avg.f_sqrt()?,
        };
        let average = average.f_add_scalar_(self.eps)?;

        match others.first_mut().filter(|_| self.momentum > 0.0) {
            Some(buffer) => {
                let _ = buffer.f_mul_scalar_(self.momentum)?;
                let _ = buffer.f_addcdiv_(&gradient, &average)?;
                parameter.f_add_(&buffer.f_mul_scalar(-lr)?).map(drop)
            }
            None => parameter.f_addcdiv_(&gradient.f_mul_scalar(-lr)?, &average).map(drop),
        }
    }
}
