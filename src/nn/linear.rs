//! `torch.nn.Linear`.

use super::error::check_width;
use super::{Init, NnError, Scope};
use tch::Tensor;

/// y = x Wᵀ + b, with W of shape `[out_features, in_features]`.
#[derive(Debug)]
pub struct Linear {
    weight: Tensor,
    bias: Tensor,
    in_features: usize,
}

impl Linear {
    pub fn new(scope: &Scope, in_features: usize, out_features: usize) -> Result<Self, NnError> {
        Self::with_init(scope, in_features, out_features, Init::linear(in_features))
    }

    /// With another distribution for weight and bias than PyTorch's default.
    pub fn with_init(scope: &Scope, in_features: usize, out_features: usize, init: Init) -> Result<Self, NnError> {
        let weight = scope.parameter("weight", &[out_features, in_features], init)?;
        let bias = scope.parameter("bias", &[out_features], init)?;
        Ok(Linear {
            weight,
            bias,
            in_features,
        })
    }

    /// `[batch, in_features]` to `[batch, out_features]`.
    pub fn forward(&self, input: &Tensor) -> Result<Tensor, NnError> {
        check_width("Linear", input, self.in_features)?;
        Ok(input.linear(&self.weight, Some(&self.bias)))
    }

    /// `[out_features, in_features]`.
    pub fn weight(&self) -> &Tensor {
        &self.weight
    }

    /// `[out_features]`.
    pub fn bias(&self) -> &Tensor {
        &self.bias
    }
}
