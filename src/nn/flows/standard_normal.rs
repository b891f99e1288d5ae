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

    /// `[count, features]`, from libtorch's global generator.
    pub fn sample(&self, count: i64, device: Device) -> Tensor {
        Tensor::randn([count, self.features as i64], (Kind::Float, device))
    }
}
