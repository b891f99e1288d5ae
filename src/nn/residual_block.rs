//! The residual block of nflows and of Dingo, which differ in the choice of normalizations only. Pre-activation residual
//! blocks: He et al. 2016, arXiv:1603.05027; gated linear units: Dauphin et al. 2017, arXiv:1612.08083.

use super::{Dropout, Init, Linear, Mode, NnError, NormLayer, Scope};
use crate::settings::{Activation, Norm};
use crate::torch_ext::gated_residual;
use tch::Tensor;

/// What all blocks of a network share.
#[derive(Debug, Clone, Copy)]
pub struct ResidualBlockConfig {
    /// Width of a context that gates the block's output; none for no gate.
    pub context_features: Option<usize>,
    pub activation: Activation,
    pub dropout_probability: f64,
    pub norm: Norm,
}

/// Bound of the last layer's initial weights: a new block is close to the identity.
const LAST_LAYER_BOUND: f64 = 1e-3;

/// x + glu(linear(dropout(act(norm(linear(act(norm(x))))))), gate by a linear map of the context).
pub struct ResidualBlock {
    norm_layers: [NormLayer; 2],
    context_layer: Option<Linear>,
    linear_layers: [Linear; 2],
    dropout: Dropout,
    activation: Activation,
}

impl ResidualBlock {
    pub fn new(scope: &Scope, features: usize, config: &ResidualBlockConfig) -> Result<Self, NnError> {
        let norm_layers = [
            NormLayer::new(scope, config.norm, 0, features)?,
            NormLayer::new(scope, config.norm, 1, features)?,
        ];
        let context_layer = config
            .context_features
            .map(|width| Linear::new(&scope.child("context_layer"), width, features));
        let context_layer = context_layer.transpose()?;
        let layers = scope.child("linear_layers");
        let linear_layers = [
            Linear::new(&layers.child(0), features, features)?,
            Linear::with_init(&layers.child(1), features, features, Init::symmetric(LAST_LAYER_BOUND))?,
        ];
        let dropout = Dropout::new(scope, config.dropout_probability);
        Ok(ResidualBlock {
            norm_layers,
            context_layer,
            linear_layers,
            dropout,
            activation: config.activation,
        })
    }

    /// The layer that makes this block's gate from the context; none without a context. Whoever calls
    /// [`forward`](Self::forward) applies it, to make the gates of many blocks in one product.
    pub fn context_layer(&self) -> Option<&Linear> {
        self.context_layer.as_ref()
    }

    /// `[batch, features]` to the same. `gate` is what the context layer gave, `[batch, features]`; its rows may lie apart.
    pub fn forward(&self, input: &Tensor, gate: Option<&Tensor>, mode: Mode) -> Result<Tensor, NnError> {
        let (x, skip) = self.norm_layers[0].forward_with_skip(input, self.activation, mode)?;
        let x = self.linear_layers[0].forward(&x)?;
        let x = self.norm_layers[1].forward(&x, self.activation, mode)?;
        let x = self.linear_layers[1].forward(&self.dropout.forward(&x, mode)?)?;
        Ok(match gate {
            Some(gate) => gated_residual(&skip, &x, gate)?,
            None => skip + x,
        })
    }
}
