//! A flow and the network that embeds its context.

use super::{Flow, Mode, NnError};
use crate::nn::EmbeddingNet;
use tch::Tensor;

/// Dingo's `FlowWrapper`: the density of θ given the data, embedded.
pub struct FlowWrapper {
    embedding_net: EmbeddingNet,
    flow: Flow,
}

impl FlowWrapper {
    /// Both are registered by the caller, as `embedding_net` and `flow`, in this order.
    pub fn new(embedding_net: EmbeddingNet, flow: Flow) -> Self {
        FlowWrapper { embedding_net, flow }
    }

    /// `theta` is `[batch, features]`, `context` as for [`EmbeddingNet::forward`]; gives `[batch]`.
    pub fn log_prob(&self, theta: &Tensor, context: &[Tensor], mode: Mode) -> Result<Tensor, NnError> {
        self.flow
            .log_prob(theta, &self.embedding_net.forward(context, mode)?, mode)
    }

    /// As [`Flow::to_noise`], for data that are embedded first.
    pub fn to_noise(&self, theta: &Tensor, context: &[Tensor], mode: Mode) -> Result<(Tensor, Tensor), NnError> {
        self.flow
            .to_noise(theta, &self.embedding_net.forward(context, mode)?, mode)
    }

    /// As [`Flow::from_noise`], for data that are embedded first.
    pub fn from_noise(&self, noise: &Tensor, context: &[Tensor]) -> Result<(Tensor, Tensor), NnError> {
        self.flow
            .from_noise(noise, &self.embedding_net.forward(context, Mode::Eval)?)
    }

    /// As [`Flow::sample_and_log_prob`], for data that are embedded first.
    pub fn sample_and_log_prob(&self, context: &[Tensor], num_samples: i64) -> Result<(Tensor, Tensor), NnError> {
        self.flow
            .sample_and_log_prob(&self.embedding_net.forward(context, Mode::Eval)?, num_samples)
    }
}
