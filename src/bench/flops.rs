//! The floating-point operations of a step's matrix products, counted from the layers' shapes.

use crate::nn::ModuleState;
use serde::Serialize;

/// What the first layer's weights are called, and the layer that follows it.
const FIRST_LAYER: &str = "layers_rb";
const EMBEDDING: &str = "embedding_net";
const AFTER_FIRST_LAYER: &str = "initial_layer";

/// Operations of a step over the whole batch, of all ranks, by part of the network.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct GemmFlops {
    /// The projection of the strain onto reduced bases.
    pub first_layer: u64,
    /// The rest of the embedding.
    pub embedding: u64,
    pub flow: u64,
}

impl GemmFlops {
    /// For `rows` samples: two operations for each weight and row forward, as many for the gradient of a weight that is
    /// trained, and as many for the gradient of a layer's input where something before it is trained. The flow's own
    /// small matrices (as wide as the parameters) do not count.
    pub fn of_step(state: &ModuleState, rows: usize) -> GemmFlops {
        let mut flops = GemmFlops::default();
        let first_layer_is_trained = state
            .named_parameters()
            .any(|(name, weight)| name.contains(FIRST_LAYER) && weight.requires_grad());
        for (name, weight) in state.named_parameters().filter(|(name, _)| name.ends_with("weight")) {
            let [outputs, inputs] = weight.size()[..] else {
                continue;
            };
            let product = 2 * rows as u64 * outputs as u64 * inputs as u64;
            let is_first = name.contains(FIRST_LAYER);
            let is_second = name.starts_with(EMBEDDING) && name.contains(AFTER_FIRST_LAYER);
            let input_has_gradient = !is_first && (!is_second || first_layer_is_trained);
            let products = 1 + u64::from(weight.requires_grad()) + u64::from(input_has_gradient);
            let part = match (is_first, name.starts_with(EMBEDDING)) {
                (true, _) => &mut flops.first_layer,
                (_, true) => &mut flops.embedding,
                _ => &mut flops.flow,
            };
            *part += products * product;
        }
        flops
    }

    pub fn total(&self) -> u64 {
        self.first_layer + self.embedding + self.flow
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nn::BuildContext;
    use crate::posterior;
    use crate::settings::Settings;
    use std::path::Path;

    /// Known from an independent count.
    #[test]
    fn the_benchmarks_network_has_68_and_88_gigaflop() {
        let mut settings = Settings::load(Path::new("settings/bench.yaml")).unwrap().train;
        settings.set_context_parameters(Vec::new());
        settings.complete_model(10, [2, 3, 8033]);
        let model = posterior::build(&settings.model, None, &BuildContext::default()).unwrap();
        let gigaflop = |frozen: bool| {
            model.state().set_requires_grad("layers_rb", !frozen);
            (GemmFlops::of_step(model.state(), 512).total() as f64 / 1e8).round() / 10.0
        };
        assert_eq!((gigaflop(true), gigaflop(false)), (67.8, 88.4));
    }
}
