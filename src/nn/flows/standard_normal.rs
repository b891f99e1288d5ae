//! The base distribution.

use super::NnError;
use crate::torch_ext::log_density;
use tch::{Device, Kind, Tensor};

/// Independent normal variables of zero mean and unit variance.
#[derive(Debug, Clone, Copy)]
pub struct StandardNormal {
    features: usize,
}

impl StandardNormal {
    pub fn new(features: usize) -> Self {
        StandardNormal { features }
    }

    pub fn features(&self) -> usize {
        self.features
    }

    /// The log-density of `inputs`, `[batch, features]`, and all `terms` added up ([`log_density`]): `[batch]`.
    pub fn log_prob_with(&self, inputs: &Tensor, terms: &[&Tensor]) -> Result<Tensor, NnError> {
        Ok(log_density(terms, Some(inputs), inputs.size()[0])?)
    }

    /// `[count, features]`, from libtorch's global generator.
    pub fn sample(&self, count: i64, device: Device) -> Tensor {
        Tensor::randn([count, self.features as i64], (Kind::Float, device))
    }
}
