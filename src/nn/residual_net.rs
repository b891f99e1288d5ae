//! The conditioner network of nflows' coupling transforms (Durkan et al. 2019, arXiv:1906.04032).

use super::context_layers::initial_and_gates;
use super::{Conditioner, Linear, Mode, NnError, ResidualBlock, ResidualBlockConfig, Scope};
use tch::Tensor;

#[derive(Debug, Clone, Copy)]
pub struct ResidualNetConfig {
    pub in_features: usize,
    pub out_features: usize,
    pub hidden_features: usize,
    pub num_blocks: usize,
    pub block: ResidualBlockConfig,
}

/// Residual blocks between two linear layers. A context both follows the input and gates every block.
pub struct ResidualNet {
    initial_layer: Linear,
    blocks: Vec<ResidualBlock>,
    final_layer: Linear,
    hidden_features: usize,
    context_features: Option<usize>,
}

impl ResidualNet {
    pub fn new(scope: &Scope, config: &ResidualNetConfig) -> Result<Self, NnError> {
        let hidden_features = config.hidden_features;
        let width = config.in_features + config.block.context_features.unwrap_or(0);
        let initial_layer = Linear::new(&scope.child("initial_layer"), width, hidden_features)?;
        let list = scope.child("blocks");
        let blocks = (0..config.num_blocks)
            .map(|i| ResidualBlock::new(&list.child(i), hidden_features, &config.block))
            .collect::<Result<_, _>>()?;
        let final_layer = Linear::new(&scope.child("final_layer"), hidden_features, config.out_features)?;
        Ok(ResidualNet {
            initial_layer,
            blocks,
            final_layer,
            hidden_features,
            context_features: config.block.context_features,
        })
    }
}

impl Conditioner for ResidualNet {
    fn forward(&self, inputs: &Tensor, context: Option<&Tensor>, mode: Mode) -> Result<Tensor, NnError> {
        let (mut x, gates) = match context {
            Some(context) => {
                let context_features = self.context_features.unwrap_or(0);
                initial_and_gates(&self.initial_layer, inputs, &self.blocks, context, context_features)?
            }
            None => (self.initial_layer.forward(inputs)?, Vec::new()),
        };
        for (i, block) in self.blocks.iter().enumerate() {
            x = block.forward(&x, gates.get(i), mode)?;
        }
        self.final_layer.forward(&x)
    }

    fn hidden_features(&self) -> Option<usize> {
        Some(self.hidden_features)
    }
}
