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
        self.flow.log_prob(theta, &self.embedding_net.forward(context, mode)?, mode)
    }

    /// As [`Flow::sample_and_log_prob`], for data that are embedded first.
    pub fn sample_and_log_prob(&self, context: &[Tensor], num_samples: i64) -> Result<(Tensor, Tensor), NnError> {
        self.flow.sample_and_log_prob(&self.embedding_net.forward(context, Mode::Eval)?, num_samples)
    }
}
