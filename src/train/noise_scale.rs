//! The gradient noise scale: the batch size up to which larger batches pay (McCandlish et al. 2018, arXiv:1812.06162,
//! appendix A.1).
//!
//! A step's gradient is the mean of the gradients of P equal parts of its batch: those of the ranks, or of the passes of one
//! rank. With the batch of B samples and the covariance Σ of a single sample's gradient about the true gradient G,
//! E |g_B|² = |G|² + tr Σ / B and E |g_part|² = |G|² + P tr Σ / B, two equations for |G|² and tr Σ. Their ratio is the noise
//! scale. Both are noisy, so each is averaged on its own over many steps before the ratio is taken.

use super::saved_state::{dictionary, SavedState};
use super::TrainError;
use crate::settings::Value;

/// Steps that the averages reach back, about.
const HORIZON: f64 = 500.0;

/// The norms of one step's gradients.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GradientNorms {
    /// Samples of the step.
    pub batch_size: f64,
    /// Equal parts of it, at least two.
    pub parts: f64,
    /// |g|² of the whole.
    pub whole: f64,
    /// The mean over the parts of |g|² of each.
    pub part: f64,
}

/// What is known of the noise scale.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    /// tr Σ / |G|², in samples.
    pub noise_scale: f64,
    pub standard_error: f64,
    /// |G|².
    pub square_norm: f64,
    /// tr Σ.
    pub variance: f64,
}

/// Running averages over steps, with exponentially falling weights.
#[derive(Debug, Clone, PartialEq)]
pub struct NoiseScale {
    decay: f64,
    /// Sums of the weights and of their squares.
    weight: f64,
    square_weight: f64,
    /// Weighted sums of estimates of (tr Σ, |G|²) and of their products.
    variance: f64,
    square_norm: f64,
    variance_squared: f64,
    product: f64,
    square_norm_squared: f64,
}

impl Default for NoiseScale {
    fn default() -> Self {
        Self::with_horizon(HORIZON)
    }
}

impl NoiseScale {
    /// Averages that reach back `steps` steps, about.
    pub fn with_horizon(steps: f64) -> NoiseScale {
        NoiseScale {
            decay: 1.0 - 1.0 / steps,
            weight: 0.0,
            square_weight: 0.0,
            variance: 0.0,
            square_norm: 0.0,
            variance_squared: 0.0,
            product: 0.0,
            square_norm_squared: 0.0,
        }
    }

    /// Takes in a step. One whose numbers are not finite is left aside.
    pub fn add(&mut self, norms: GradientNorms) {
        let GradientNorms {
            batch_size,
            parts,
            whole,
            part,
        } = norms;
        let square_norm = (parts * whole - part) / (parts - 1.0);
        let variance = (part - whole) * batch_size / (parts - 1.0);
        if !square_norm.is_finite() || !variance.is_finite() {
            return;
        }
        let fade = |sum: &mut f64, decay: f64, new: f64| *sum = *sum * decay + new;
        fade(&mut self.weight, self.decay, 1.0);
        fade(&mut self.square_weight, self.decay * self.decay, 1.0);
        fade(&mut self.variance, self.decay, variance);
        fade(&mut self.square_norm, self.decay, square_norm);
        fade(&mut self.variance_squared, self.decay, variance * variance);
        fade(&mut self.product, self.decay, variance * square_norm);
        fade(&mut self.square_norm_squared, self.decay, square_norm * square_norm);
    }

    /// The ratio of the averages, and its standard error to first order in those of both (with their correlation). `None`
    /// before two steps, and where noise hides the gradient so well that the estimate of |G|² is not above zero.
    pub fn estimate(&self) -> Option<Estimate> {
        let effective_steps = self.weight * self.weight / self.square_weight;
        let mean = |sum: f64| sum / self.weight;
        let (variance, square_norm) = (mean(self.variance), mean(self.square_norm));
        if effective_steps.is_nan() || effective_steps < 2.0 || square_norm <= 0.0 {
            return None;
        }
        let noise_scale = variance / square_norm;
        // The variance of one step's `variance - noise_scale * square_norm`, whose mean is zero.
        let spread = mean(self.variance_squared) - 2.0 * noise_scale * mean(self.product)
            + noise_scale * noise_scale * mean(self.square_norm_squared);
        let standard_error = (spread.max(0.0) / (effective_steps - 1.0)).sqrt() / square_norm;
        Some(Estimate {
            noise_scale,
            standard_error,
            square_norm,
            variance,
        })
    }

    /// For a checkpoint.
    pub fn state(&self) -> Value {
        dictionary(self.sums().map(|(name, sum)| (name, sum.into())))
    }

    /// Takes over such a state.
    ///
    /// # Errors
    /// A value that is missing or no number.
    pub fn load_state(&mut self, path: &str, state: &Value) -> Result<(), TrainError> {
        let saved = SavedState::from_value(path, state)?;
        let mut restored = self.clone();
        for (name, place) in restored.sums_mut() {
            *place = saved.float(name)?;
        }
        *self = restored;
        Ok(())
    }

    fn sums(&self) -> [(&'static str, f64); 7] {
        let mut copy = self.clone();
        copy.sums_mut().map(|(name, sum)| (name, *sum))
    }

    fn sums_mut(&mut self) -> [(&'static str, &mut f64); 7] {
        [
            ("weight", &mut self.weight),
            ("square_weight", &mut self.square_weight),
            ("variance", &mut self.variance),
            ("square_norm", &mut self.square_norm),
            ("variance_squared", &mut self.variance_squared),
            ("product", &mut self.product),
            ("square_norm_squared", &mut self.square_norm_squared),
        ]
    }
}

impl Estimate {
    /// The batch size that the noise scale suggests: of training time and cost, it wastes neither. A multiple of the number
    /// of ranks, which share it.
    pub fn batch_size(&self, ranks: usize) -> u64 {
        let ranks = ranks as f64;
        ((self.noise_scale / ranks).round().max(1.0) * ranks) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Norms of a step in which every part has exactly its expectation.
    fn expected(batch_size: f64, parts: f64, square_norm: f64, variance: f64) -> GradientNorms {
        GradientNorms {
            batch_size,
            parts,
            whole: square_norm + variance / batch_size,
            part: square_norm + variance * parts / batch_size,
        }
    }

    #[test]
    fn expectations_give_the_ratio_exactly() {
        let mut noise = NoiseScale::default();
        assert_eq!(noise.estimate(), None);
        for parts in [2.0, 2.0, 8.0, 4.0] {
            noise.add(expected(64.0, parts, 3.0, 600.0));
        }
        noise.add(GradientNorms {
            whole: f64::NAN,
            ..expected(64.0, 2.0, 3.0, 600.0)
        });
        let estimate = noise.estimate().unwrap();
        assert!((estimate.noise_scale - 200.0).abs() < 1e-9, "{estimate:?}");
        assert!(estimate.standard_error < 1e-4, "{estimate:?}");
        assert_eq!((estimate.batch_size(3), estimate.batch_size(64)), (201, 192));

        let mut restored = NoiseScale::default();
        restored.load_state("spmd.noise_scale", &noise.state()).unwrap();
        assert_eq!(restored, noise);
    }

    #[test]
    fn noise_that_hides_the_gradient_gives_nothing() {
        let mut noise = NoiseScale::default();
        for _ in 0..10 {
            noise.add(expected(8.0, 2.0, -0.1, 5.0));
        }
        assert_eq!(noise.estimate(), None);
    }
}
