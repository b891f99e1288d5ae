//! The posterior models; `loss(batch)` is their face.

mod normalizing_flow;
#[cfg(test)]
mod tests;

pub use normalizing_flow::NormalizingFlow;

use crate::nn::{BuildContext, Mode, ModuleState, NnError};
use crate::settings::{ModelSettings, PosteriorModelType};
use tch::Tensor;

/// A network for the posterior p(θ | data), whatever its kind.
///
/// `theta` is `[batch, input_dim]`, standardized. `context` holds what the posterior is conditioned on: the strain,
/// `[batch, detectors, channels, bins]`, then, for GNPE, the proxies, `[batch, n]`.
pub trait PosteriorModel {
    /// What training minimizes the mean of, sample by sample: `[batch]`.
    fn loss(&self, theta: &Tensor, context: &[Tensor], mode: Mode) -> Result<Tensor, NnError>;

    /// Log-density of `theta`, `[batch]`.
    fn log_prob(&self, theta: &Tensor, context: &[Tensor], mode: Mode) -> Result<Tensor, NnError>;

    /// `num_samples` draws for each row of the context, `[batch, num_samples, input_dim]`, and their log-density,
    /// `[batch, num_samples]`. The network is in evaluation mode; random numbers come from libtorch's global generator.
    fn sample_and_log_prob(&self, context: &[Tensor], num_samples: i64) -> Result<(Tensor, Tensor), NnError>;

    /// The network's parameters and buffers.
    fn state(&self) -> &ModuleState;
}

/// Builds the model that the settings ask for, its sizes completed from the data (`input_dim`, `context_dim`,
/// `input_dims`). `initial_weights` are the SVD bases for the embedding's first layer, one per detector, complex
/// `[bins, n]` with n at least `svd.size`; none where a saved network will be loaded, or the settings say `no_init`.
pub fn build(
    model: &ModelSettings,
    initial_weights: Option<&[Tensor]>,
    context: &BuildContext,
) -> Result<Box<dyn PosteriorModel>, NnError> {
    match model.posterior_model_type {
        PosteriorModelType::NormalizingFlow => Ok(Box::new(NormalizingFlow::new(model, initial_weights, context)?)),
    }
}
