//! A distribution made from a simple one by an invertible transform.

use super::super::error::check_width;
use super::{Mode, NnError, StandardNormal, Transform};
use tch::Tensor;

/// The density q(θ | c) = N(f(θ, c)) |det ∂f/∂θ| with the transform f to the standard normal.
pub struct Flow {
    transform: Box<dyn Transform>,
    distribution: StandardNormal,
}

impl Flow {
    /// The transform is registered by the caller, as `_transform`; the distribution has nothing to save.
    pub fn new(transform: Box<dyn Transform>, distribution: StandardNormal) -> Self {
        Flow { transform, distribution }
    }

    /// `theta` is `[batch, features]`, `context` `[batch, context_features]`; gives `[batch]`.
    pub fn log_prob(&self, theta: &Tensor, context: &Tensor, mode: Mode) -> Result<Tensor, NnError> {
        check_width("flow (theta)", theta, self.distribution.features())?;
        let (batch, actual) = (theta.size()[0], context.size());
        if actual.first() != Some(&batch) {
            let expected = format!("[{batch}, context_features], as theta has {batch} samples");
            return Err(NnError::Shape { layer: "flow (context)", expected, actual });
        }
        let (noise, logabsdet) = self.transform.forward(theta, Some(context), mode)?;
        Ok(self.distribution.log_prob(&noise) + logabsdet)
    }

    /// Draws `num_samples` for each row of `context`, `[batch, context_features]`: the samples,
    /// `[batch, num_samples, features]`, and their log-density, `[batch, num_samples]`.
    pub fn sample_and_log_prob(&self, context: &Tensor, num_samples: i64) -> Result<(Tensor, Tensor), NnError> {
        let batch = context.size()[0];
        let noise = self.distribution.sample(batch * num_samples, context.device());
        let repeated = context.f_repeat_interleave_self_int(num_samples, 0, None)?;
        let (samples, logabsdet) = self.transform.inverse(&noise, Some(&repeated), Mode::Eval)?;
        let log_prob = self.distribution.log_prob(&noise) - logabsdet;
        let features = self.distribution.features() as i64;
        Ok((samples.f_view([batch, num_samples, features])?, log_prob.f_view([batch, num_samples])?))
    }
}
