//! Measures the norms that the gradient noise scale is estimated from, without a collective of their own.

use super::noise_scale::{GradientNorms, NoiseScale};
use super::TrainError;
use crate::torch_ext::square_norm;
use tch::{no_grad, Tensor};

/// Follows the gradients of each step. With several ranks, a rank's own norm is known only when its last gradients are on
/// their way, so it rides along with the next step's, and a step is taken into account one step late. One rank compares the
/// passes of an accumulated step.
#[derive(Debug)]
pub struct PartNorms {
    pub noise_scale: NoiseScale,
    ranks: usize,
    passes: usize,
    /// Samples of a full step; others are left aside, since their parts are not equal.
    batch_size: usize,
    /// The gradient before the pass under way, where passes are the parts.
    before: Vec<Tensor>,
    pass_squares: f64,
    /// The last step: |g|² of this rank's own part, and of the whole.
    last: Option<(f64, f64)>,
}

impl PartNorms {
    /// `batch_size`: samples of a step. `None` where there is only one part.
    pub fn new(ranks: usize, passes: usize, batch_size: usize) -> Option<PartNorms> {
        (ranks * passes > 1).then(|| PartNorms {
            noise_scale: NoiseScale::default(),
            ranks,
            passes,
            batch_size,
            before: Vec::new(),
            pass_squares: 0.0,
            last: None,
        })
    }

    /// After each backward pass of one rank alone: what the pass added to the gradient.
    ///
    /// # Errors
    /// No memory for a copy of the gradient.
    pub fn pass(&mut self, gradients: &[Tensor]) -> Result<(), TrainError> {
        if self.ranks > 1 {
            return Ok(());
        }
        no_grad(|| {
            let added = gradients
                .iter()
                .enumerate()
                .map(|(index, gradient)| match self.before.get(index) {
                    Some(before) => gradient.f_sub(before),
                    None => Ok(gradient.shallow_clone()),
                });
            self.pass_squares += square_norm(&added.collect::<Result<Vec<_>, _>>()?, 1.0)?.square;
            self.before = gradients.iter().map(Tensor::copy).collect();
            Ok(())
        })
    }

    /// What this rank tells the others with the next step: the norm of its part of the last one, 0 when there is none.
    pub fn own(&self) -> f64 {
        self.last.map_or(0.0, |(own, _)| own)
    }

    /// The norms that all ranks told with this step, about the last one.
    pub fn hear(&mut self, told: &[f64]) {
        if let Some((_, whole)) = self.last.take() {
            let part = told.iter().sum::<f64>() / self.ranks as f64;
            self.add(self.ranks, whole, part);
        }
    }

    /// A step was made with a gradient of squared norm `whole`, reduced and unscaled, from this many samples;
    /// `local_square_norm` is the squared norm of what this rank added to it, scaled by `scale`.
    pub fn step(&mut self, whole: f64, samples: u64, local_square_norm: Option<f64>, scale: f64) {
        let passes = std::mem::take(&mut self.pass_squares);
        self.before.clear();
        if samples != self.batch_size as u64 {
            return;
        }
        // A part adds 1/P of its mean gradient to the whole.
        let of_parts = |squares: f64, parts: usize| squares * (parts as f64 / scale).powi(2);
        match local_square_norm {
            Some(own) => self.last = Some((of_parts(own, self.ranks), whole)),
            None => self.add(self.passes, whole, of_parts(passes, self.passes) / self.passes as f64),
        }
    }

    /// A step was not made.
    pub fn skip(&mut self) {
        self.pass_squares = 0.0;
        self.before.clear();
    }

    fn add(&mut self, parts: usize, whole: f64, part: f64) {
        self.noise_scale.add(GradientNorms {
            batch_size: self.batch_size as f64,
            parts: parts as f64,
            whole,
            part,
        });
    }
}
