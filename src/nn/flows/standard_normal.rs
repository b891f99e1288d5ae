//! The base distribution.

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

    /// `[batch, features]` to `[batch]`.
    pub fn log_prob(&self, inputs: &Tensor) -> Tensor {
        let log_z = 0.5 * self.features as f64 * (2.0 * std::f64::consts::PI).ln();
        inputs.square().sum_dim_intlist(1, false, None::<Kind>) * -0.5 - log_z
    }

    /// `[count, features]`, from libtorch's global generator.
    pub fn sample(&self, count: i64, device: Device) -> Tensor {
        Tensor::randn([count, self.features as i64], (Kind::Float, device))
    }
}
