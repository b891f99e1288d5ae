//! `torch.nn.Linear`.

use super::error::check_width;
use super::{Init, NnError, Scope};
use crate::torch_ext::{linear, InputColumns, LinearLayer};
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
        Ok(linear(input, &self.weight, &self.bias)?)
    }

    pub(super) fn in_features(&self) -> usize {
        self.in_features
    }

    /// This layer as one of a group that is computed together ([`linear_group`](crate::torch_ext::linear_group)).
    pub(super) fn in_group<'a>(&'a self, reads: &'a [InputColumns], output: usize) -> LinearLayer<'a> {
        LinearLayer {
            weight: &self.weight,
            bias: &self.bias,
            reads,
            output,
        }
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
