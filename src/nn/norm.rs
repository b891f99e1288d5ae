//! The choice between normalizations, each with the activation after it.

use super::{activate, BatchNorm1d, LayerNorm, Mode, NnError, Scope};
use crate::settings::{Activation, Norm};
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

    /// `[batch, features]` to the same, normalized and activated.
    pub fn forward(&self, input: &Tensor, activation: Activation, mode: Mode) -> Result<Tensor, NnError> {
        match self {
            NormLayer::None => Ok(activate(activation, input)),
            NormLayer::Batch(layer) => layer.forward_activated(input, activation, mode),
            NormLayer::Layer(layer) => Ok(activate(activation, &layer.forward(input)?)),
        }
    }

    /// As [`forward`](Self::forward); also gives `input` for a connection past the layer. Where that pays, the gradients
    /// of both ways are added in the layer's own pass.
    pub fn forward_with_skip(
        &self,
        input: &Tensor,
        activation: Activation,
        mode: Mode,
    ) -> Result<(Tensor, Tensor), NnError> {
        match self {
            NormLayer::Batch(layer) => layer.forward_with_skip(input, activation, mode),
            _ => Ok((self.forward(input, activation, mode)?, input.shallow_clone())),
        }
    }
}
