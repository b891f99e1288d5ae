//! Adam (Kingma & Ba, arXiv:1412.6980), with AMSGrad (Reddi et al., arXiv:1904.09237); AdamW's decoupled weight decay
//! (Loshchilov & Hutter, arXiv:1711.05101).

use super::rule::UpdateRule;
use crate::settings::Value;
use crate::torch_ext::{AdamOptions, ElementUpdate, FusedAdamOptions};
use crate::train::saved_state::SavedState;
use crate::train::TrainError;

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

    fn fused_adam(&self, lr: f64) -> Option<FusedAdamOptions> {
        Some(FusedAdamOptions {
            lr,
            beta1: self.betas.0,
            beta2: self.betas.1,
            weight_decay: self.weight_decay,
            eps: self.eps,
            amsgrad: self.amsgrad,
            decoupled_weight_decay: self.decoupled_weight_decay,
        })
    }

    fn element(&self, lr: f64, updates: u64) -> ElementUpdate {
        let (beta1, beta2) = self.betas;
        let bias_correction = |beta: f64| 1.0 - beta.powf(updates as f64);
        let (l2, shrink) = match self.decoupled_weight_decay {
            true => (0.0, 1.0 - lr * self.weight_decay),
            false => (self.weight_decay, 1.0),
        };
        ElementUpdate::Adam(AdamOptions {
            step_size: lr / bias_correction(beta1),
            beta1,
            beta2,
            root_correction: bias_correction(beta2).sqrt(),
            eps: self.eps,
            l2,
            shrink,
            amsgrad: self.amsgrad,
        })
    }
}
