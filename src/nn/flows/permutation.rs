//! A random but fixed order of the features.

use super::super::error::check_width;
use super::{Mode, NnError, Transform, Transformed};
use crate::nn::Scope;
use crate::torch_ext::select_features;
use tch::Tensor;

/// Output i is input `permutation[i]`. Drawn when the network is built; a buffer, so saved and loaded with it.
pub struct RandomPermutation {
    permutation: Tensor,
    features: usize,
}

impl RandomPermutation {
    pub fn new(scope: &Scope, features: usize) -> Result<Self, NnError> {
        let order = scope.generator("_permutation").permutation(features);
        let permutation = scope.buffer("_permutation", Tensor::f_from_slice(&order)?)?;
        Ok(RandomPermutation { permutation, features })
    }

    fn reorder(&self, inputs: &Tensor, order: &Tensor) -> Result<Transformed, NnError> {
        check_width("RandomPermutation", inputs, self.features)?;
        // Fallible: the order may come from a file.
        Ok((select_features(inputs, order)?, None))
    }
}

impl Transform for RandomPermutation {
    fn forward(&self, inputs: &Tensor, _context: Option<&Tensor>, _mode: Mode) -> Result<Transformed, NnError> {
        self.reorder(inputs, &self.permutation)
    }

    fn inverse(&self, inputs: &Tensor, _context: Option<&Tensor>, _mode: Mode) -> Result<Transformed, NnError> {
        self.reorder(inputs, &self.permutation.argsort(0, false))
    }
}
