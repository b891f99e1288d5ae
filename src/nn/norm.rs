//! The choice between normalizations.

use super::{BatchNorm1d, LayerNorm, Mode, NnError, Scope};
use crate::settings::Norm;
use tch::Tensor;

/// A normalization layer as `norm` in the settings asks for it.
pub enum NormLayer {
    None,
    Batch(BatchNorm1d),
    Layer(LayerNorm),
}

impl NormLayer {
    /// The layer with index `index` of the module at `scope`; Dingo names the list after the kind.
    pub fn new(scope: &Scope, norm: Norm, index: usize, features: usize) -> Result<Self, NnError> {
        Ok(match norm {
            Norm::None => NormLayer::None,
            Norm::BatchNorm => NormLayer::Batch(BatchNorm1d::new(
                &scope.child("batch_norm_layers").child(index),
                features,
            )?),
            Norm::LayerNorm => NormLayer::Layer(LayerNorm::new(
                &scope.child("layer_norm_layers").child(index),
                features,
            )?),
        })
    }

    /// `[batch, features]` to the same.
    pub fn forward(&self, input: &Tensor, mode: Mode) -> Result<Tensor, NnError> {
        match self {
            NormLayer::None => Ok(input.shallow_clone()),
            NormLayer::Batch(layer) => layer.forward(input, mode),
            NormLayer::Layer(layer) => layer.forward(input),
        }
    }
}
