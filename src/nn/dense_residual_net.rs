//! Dingo's dense residual network: the second stage of the embedding, and the conditioner of flows with LayerNorm.
//! (Dax et al. 2021, arXiv:2106.12594, describes the embedding.)

use super::context_layers::gates;
use super::{Conditioner, Linear, Mode, NnError, ResidualBlock, ResidualBlockConfig, Scope};
use tch::Tensor;

#[derive(Debug, Clone)]
pub struct DenseResidualNetConfig {
    pub input_dim: usize,
    pub output_dim: usize,
    /// Width of each residual block; at least one.
    pub hidden_dims: Vec<usize>,
    pub block: ResidualBlockConfig,
}

/// Residual blocks, each followed by a linear layer to the width of the next where that differs. A context only gates the
/// blocks.
pub struct DenseResidualNet {
    initial_layer: Linear,
    blocks: Vec<ResidualBlock>,
    /// After each block; none where the widths agree.
    resize_layers: Vec<Option<Linear>>,
    hidden_features: Option<usize>,
}

impl DenseResidualNet {
    pub fn new(scope: &Scope, config: &DenseResidualNetConfig) -> Result<Self, NnError> {
        let dims = &config.hidden_dims;
        let Some((&first, &last)) = dims.first().zip(dims.last()) else {
            return Err(NnError::settings(
                "hidden_dims",
                "a residual network needs at least one hidden layer",
            ));
        };
        let initial_layer = Linear::new(&scope.child("initial_layer"), config.input_dim, first)?;

        let list = scope.child("blocks");
        let blocks = (dims.iter().enumerate())
            .map(|(i, &width)| ResidualBlock::new(&list.child(i), width, &config.block))
            .collect::<Result<_, _>>()?;

        let list = scope.child("resize_layers");
        let mut resize_layers = Vec::with_capacity(dims.len());
        for (i, pair) in dims.windows(2).enumerate() {
            let layer = (pair[0] != pair[1]).then(|| Linear::new(&list.child(i), pair[0], pair[1]));
            resize_layers.push(layer.transpose()?);
        }
        // The last one is there even where it does not change the width.
        resize_layers.push(Some(Linear::new(&list.child(dims.len() - 1), last, config.output_dim)?));

        let hidden_features = dims.iter().all(|&width| width == first).then_some(first);
        Ok(DenseResidualNet {
            initial_layer,
            blocks,
            resize_layers,
            hidden_features,
        })
    }
}

impl Conditioner for DenseResidualNet {
    /// `[batch, input_dim]` to `[batch, output_dim]`.
    fn forward(&self, inputs: &Tensor, context: Option<&Tensor>, mode: Mode) -> Result<Tensor, NnError> {
        let mut x = self.initial_layer.forward(inputs)?;
        let gates = gates(&self.blocks, context)?;
        for (i, (block, resize)) in self.blocks.iter().zip(&self.resize_layers).enumerate() {
            x = block.forward(&x, gates.get(i), mode)?;
            if let Some(layer) = resize {
                x = layer.forward(&x)?;
            }
        }
        Ok(x)
    }

    fn hidden_features(&self) -> Option<usize> {
        self.hidden_features
    }
}
