//! Adam (Kingma & Ba, arXiv:1412.6980), with AMSGrad (Reddi et al., arXiv:1904.09237); AdamW's decoupled weight decay
//! (Loshchilov & Hutter, arXiv:1711.05101).

use super::rule::{add_weight_decay, ParameterState, UpdateRule};
use crate::settings::Value;
use crate::train::saved_state::SavedState;
use crate::train::TrainError;
use tch::{TchError, Tensor};

#[derive(Debug, Clone)]
pub(super) struct Adam {
    betas: (f64, f64),
    eps: f64,
    weight_decay: f64,
    amsgrad: bool,
    /// AdamW: the decay acts on the parameter, not through the gradient.
    decoupled_weight_decay: bool,
}

impl Adam {
    pub fn new(betas: (f64, f64), eps: f64, weight_decay: f64, amsgrad: bool) -> Adam {
        Adam {
            betas,
            eps,
            weight_decay,
            amsgrad,
            decoupled_weight_decay: false,
        }
    }

    /// AdamW.
    pub fn decoupled(self) -> Adam {
        Adam {
            decoupled_weight_decay: true,
            ..self
        }
    }
}

impl UpdateRule for Adam {
    fn slots(&self) -> Vec<&'static str> {
        let mut slots = vec!["exp_avg", "exp_avg_sq"];
        if self.amsgrad {
            slots.push("max_exp_avg_sq");
        }
        slots
    }

    fn options(&self) -> Vec<(&'static str, Value)> {
        vec![
            ("betas", Value::Sequence(vec![self.betas.0.into(), self.betas.1.into()])),
            ("eps", self.eps.into()),
            ("weight_decay", self.weight_decay.into()),
            ("amsgrad", self.amsgrad.into()),
            ("maximize", false.into()),
            ("foreach", Value::Null),
            ("capturable", false.into()),
            ("differentiable", false.into()),
            ("fused", Value::Null),
            ("decoupled_weight_decay", self.decoupled_weight_decay.into()),
        ]
    }

    fn with_options(&self, saved: &SavedState) -> Result<Box<dyn UpdateRule>, TrainError> {
        let [beta1, beta2] = saved.floats("betas")?;
        Ok(Box::new(Adam {
            betas: (beta1, beta2),
            eps: saved.float("eps")?,
            weight_decay: saved.float("weight_decay")?,
            amsgrad: saved.bool_or("amsgrad", false)?,
            // As PyTorch: AdamW insists, Adam follows the file (which lacks the key when old).
            decoupled_weight_decay: self.decoupled_weight_decay || saved.bool_or("decoupled_weight_decay", false)?,
        }))
    }

    fn update(
        &self,
        lr: f64,
        parameter: &mut Tensor,
        gradient: &Tensor,
        state: &mut ParameterState,
    ) -> Result<(), TchError> {
        let (beta1, beta2) = self.betas;
        let gradient = if self.decoupled_weight_decay {
            if self.weight_decay != 0.0 {
                let _ = parameter.f_mul_scalar_(1.0 - lr * self.weight_decay)?;
            }
            gradient.shallow_clone()
        } else {
            add_weight_decay(gradient, parameter, self.weight_decay)?
        };

        let (moments, maximum) = state.slots.split_at_mut(2);
        let [exp_avg, exp_avg_sq] = moments else {
            unreachable!("slots() names two moments")
        };
        let _ = exp_avg.f_lerp_(&gradient, 1.0 - beta1)?;
        let _ = exp_avg_sq.f_mul_scalar_(beta2)?;
        let _ = exp_avg_sq.f_addcmul_(&gradient.f_mul_scalar(1.0 - beta2)?, &gradient)?;
        let second_moment = match maximum.first_mut() {
            Some(maximum) => {
                let larger = maximum.f_maximum(exp_avg_sq)?;
                maximum.f_copy_(&larger)?;
                larger
            }
            None => exp_avg_sq.shallow_clone(),
        };

        let updates = state.updates as f64;
        let bias_correction1 = 1.0 - beta1.powf(updates);
        let bias_correction2 = 1.0 - beta2.powf(updates);
        let mut denominator = second_moment.f_sqrt()?.f_div_scalar_(bias_correction2.sqrt())?;
        let denominator = denominator.f_add_scalar_(self.eps)?;
        let numerator = exp_avg.f_mul_scalar(-lr / bias_correction1)?;
        parameter.f_addcdiv_(&numerator, &denominator).map(drop)
    }
}
