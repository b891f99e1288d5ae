//! A distribution made from a simple one by an invertible transform.

use super::super::error::check_width;
use super::{Mode, NnError, StandardNormal, Transform, Transformed};
use tch::Tensor;

/// The density q(θ | c) = N(f(θ, c)) |det ∂f/∂θ| with the transform f to the standard normal.
pub struct Flow {
    transform: Box<dyn Transform>,
    distribution: StandardNormal,
}

impl Flow {
    /// The transform is registered by the caller, as `_transform`; the distribution has nothing to save.
    pub fn new(transform: Box<dyn Transform>, distribution: StandardNormal) -> Self {
        Flow {
            transform,
            distribution,
        }
    }

    /// Log-density of `theta`, `[batch, features]`, given `context`, `[batch, context_features]`: `[batch]`.
    pub fn log_prob(&self, theta: &Tensor, context: &Tensor, mode: Mode) -> Result<Tensor, NnError> {
        let (noise, logabsdet) = self.transform_to_noise(theta, context, mode)?;
        let terms: Vec<&Tensor> = logabsdet.iter().collect();
        self.distribution.log_prob_with(&noise, &terms)
    }

    /// The noise that `theta` comes from, `[batch, features]`, and log |det J| of that map, `[batch]`.
    pub fn to_noise(&self, theta: &Tensor, context: &Tensor, mode: Mode) -> Result<(Tensor, Tensor), NnError> {
        for_each_sample(theta, self.transform_to_noise(theta, context, mode)?)
    }

    fn transform_to_noise(&self, theta: &Tensor, context: &Tensor, mode: Mode) -> Result<Transformed, NnError> {
        check_width("flow (theta)", theta, self.distribution.features())?;
        let (batch, actual) = (theta.size()[0], context.size());
        if actual.first() != Some(&batch) {
            let expected = format!("[{batch}, context_features], as theta has {batch} samples");
            return Err(NnError::Shape {
                layer: "flow (context)",
                expected,
                actual,
            });
        }
        self.transform.forward(theta, Some(context), mode)
    }

    /// θ for noise of the base distribution: the inverse of [`to_noise`](Self::to_noise) in evaluation mode.
    pub fn from_noise(&self, noise: &Tensor, context: &Tensor) -> Result<(Tensor, Tensor), NnError> {
        for_each_sample(noise, self.transform.inverse(noise, Some(context), Mode::Eval)?)
    }

    /// Draws `num_samples` for each row of `context`, `[batch, context_features]`: the samples,
    /// `[batch, num_samples, features]`, and their log-density, `[batch, num_samples]`.
    pub fn sample_and_log_prob(&self, context: &Tensor, num_samples: i64) -> Result<(Tensor, Tensor), NnError> {
        let batch = context.size()[0];
        let noise = self.distribution.sample(batch * num_samples, context.device());
        let repeated = context.f_repeat_interleave_self_int(num_samples, 0, None)?;
        let (samples, logabsdet) = self.from_noise(&noise, &repeated)?;
        let log_prob = self.distribution.log_prob_with(&noise, &[])? - logabsdet;
        let features = self.distribution.features() as i64;
        Ok((
            samples.f_view([batch, num_samples, features])?,
            log_prob.f_view([batch, num_samples])?,
        ))
    }
}

/// A log |det J| for each sample, also where one number stands for all of them, or none for 0.
fn for_each_sample(inputs: &Tensor, (outputs, logabsdet): Transformed) -> Result<(Tensor, Tensor), NnError> {
    let batch = &inputs.size()[..1];
    let logabsdet = match logabsdet {
        Some(logabsdet) => logabsdet.f_expand(batch, false)?,
        None => inputs.f_new_zeros(batch, (inputs.kind(), inputs.device()))?,
    };
    Ok((outputs, logabsdet))
}
