//! `torch.nn.LayerNorm` (Ba, Kiros and Hinton 2016, arXiv:1607.06450).

use super::error::check_width;
use super::{Init, NnError, Scope};
use tch::Tensor;

/// PyTorch's default, which Dingo keeps.
const EPS: f64 = 1e-5;

/// Normalizes the features of each sample, then scales and shifts them.
#[derive(Debug)]
pub struct LayerNorm {
    weight: Tensor,
    bias: Tensor,
    features: usize,
}

impl LayerNorm {
    pub fn new(scope: &Scope, features: usize) -> Result<Self, NnError> {
        let weight = scope.parameter("weight", &[features], Init::Constant(1.0))?;
        let bias = scope.parameter("bias", &[features], Init::Constant(0.0))?;
        Ok(LayerNorm { weight, bias, features })
    }

    /// `[batch, features]` to the same.
    pub fn forward(&self, input: &Tensor) -> Result<Tensor, NnError> {
        check_width("LayerNorm", input, self.features)?;
        Ok(input.layer_norm([self.features as i64], Some(&self.weight), Some(&self.bias), EPS, true))
    }
}
