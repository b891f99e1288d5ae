//! Neural posterior estimation with a normalizing flow (arXiv:2106.12594).

use super::PosteriorModel;
use crate::nn::{
    build_module, neural_spline_flow, BuildContext, EmbeddingNet, FlowWrapper, Mode, ModuleState, NnError,
};
use crate::settings::ModelSettings;
use tch::Tensor;

/// The flow's density is the posterior; the loss is minus its log.
pub struct NormalizingFlow {
    network: FlowWrapper,
    state: ModuleState,
}

impl NormalizingFlow {
    /// As [`build`](super::build).
    pub fn new(
        model: &ModelSettings,
        initial_weights: Option<&[Tensor]>,
        context: &BuildContext,
    ) -> Result<Self, NnError> {
        check_context_dim(model)?;
        let (network, state) = build_module(context, |scope| {
            let embedding_net = EmbeddingNet::new(&scope.child("embedding_net"), &model.embedding, initial_weights)?;
            let flow = neural_spline_flow(&scope.child("flow"), &model.posterior)?;
            Ok(FlowWrapper::new(embedding_net, flow))
        })?;
        Ok(NormalizingFlow { network, state })
    }

    /// The flow and its embedding.
    pub fn network(&self) -> &FlowWrapper {
        &self.network
    }
}

/// The flow must be as wide as what the embedding gives: `output_dim`, and with added context at least one more.
fn check_context_dim(model: &ModelSettings) -> Result<(), NnError> {
    let (output_dim, added) = (model.embedding.output_dim, model.embedding.added_context);
    match model.posterior.context_dim {
        Some(width) if (added && width <= output_dim) || (!added && width != output_dim) => {
            let more = if added { " and added context" } else { "" };
            let message = format!("{width}, but the embedding gives {output_dim}{more}");
            Err(NnError::Settings {
                key: "model.posterior_kwargs.context_dim",
                message,
            })
        }
        _ => Ok(()),
    }
}

impl PosteriorModel for NormalizingFlow {
    fn loss(&self, theta: &Tensor, context: &[Tensor], mode: Mode) -> Result<Tensor, NnError> {
        Ok(-self.network.log_prob(theta, context, mode)?)
    }

    fn log_prob(&self, theta: &Tensor, context: &[Tensor], mode: Mode) -> Result<Tensor, NnError> {
        self.network.log_prob(theta, context, mode)
    }

    fn sample_and_log_prob(&self, context: &[Tensor], num_samples: i64) -> Result<(Tensor, Tensor), NnError> {
        self.network.sample_and_log_prob(context, num_samples)
    }

    fn state(&self) -> &ModuleState {
        &self.state
    }
}
