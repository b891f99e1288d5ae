//! Steps that the device decides on: the host gives it one after the other, and looks at each when the next is under way, so
//! that neither waits for the other.
//!
//! Everything that depends on whether a step is made (weights, loss scale, running statistics) is on the device, too. What
//! the host counts follows one step behind, by the same rules, and has caught up whenever a checkpoint is written.

use super::step::Received;
use super::stepper::Stepper;
use super::{GradScaler, Optimizer, PartNorms, StepEnd};
use crate::spmd::Reduced;
use crate::torch_ext::cuda::Fetched;
use crate::torch_ext::{unscale_and_check, update_scale};
use anyhow::Result;
use tch::{no_grad, Device, Kind, Tensor};

/// The loss scale on the device.
#[derive(Debug)]
pub struct LateSteps {
    /// `[1]`; 1 without a scaler.
    scale: Tensor,
    /// `[1]`.
    growth_tracker: Tensor,
}

impl LateSteps {
    /// Where steps can be decided on the device: on one, by an optimizer that can, with nothing that the host needs of a step
    /// before the next one begins.
    pub fn new(device: Device, optimizer: &Optimizer, norms: Option<&PartNorms>) -> Option<LateSteps> {
        (device.is_cuda() && optimizer.can_step_late() && norms.is_none()).then(|| LateSteps::on(device))
    }

    pub(super) fn on(device: Device) -> LateSteps {
        LateSteps {
            scale: Tensor::ones([1], (Kind::Float, device)),
            growth_tracker: Tensor::zeros([1], (Kind::Int, device)),
        }
    }

    /// Takes over the state of the host's scaler.
    pub fn follow(&mut self, scaler: &GradScaler) {
        let _ = self.scale.fill_(scaler.scale());
        let _ = self.growth_tracker.fill_(scaler.growth_tracker() as i64);
    }

    /// What the loss is to be multiplied by: `[]`.
    pub fn scale(&self) -> Tensor {
        self.scale.view([] as [i64; 0])
    }
}

/// A step that the device was given.
pub struct UnreadStep {
    /// Scalars, what the ranks told, and whether the step was not made.
    told: Fetched,
    samples: u64,
    reduced: Reduced,
}

impl Stepper {
    /// Gives the device the step of these gradients, to be made if it finds them and the loss finite.
    ///
    /// # Errors
    /// What libtorch says.
    pub(super) fn step_late(&mut self, reduced: Reduced, samples: u64) -> Result<UnreadStep> {
        self.communication.end(&reduced);
        let late = self.late.get_or_insert_with(|| LateSteps::on(reduced.scalars.device()));
        let inverse_scale = late.scale.f_reciprocal()?;
        let loss = Received::loss(&reduced)?;
        let found = unscale_and_check(self.reducer.flat_gradients(), &inverse_scale, &loss)?;
        if let Some((factors, interval)) = self.precision.scaler.rule() {
            update_scale(&late.scale, &late.growth_tracker, &found, factors, interval)?;
        }
        self.optimizer.step_late(&found)?;
        self.statistics.bring_back_where(&found)?;
        let told = no_grad(|| Fetched::start(&[&reduced.scalars, &reduced.of_ranks, &found]))?;
        Ok(UnreadStep { told, samples, reduced })
    }

    /// Waits for what came of such a step, and counts it.
    ///
    /// # Errors
    /// [`TrainError::Diverged`](super::TrainError::Diverged) after too many steps that were not made, or what CUDA says.
    pub(super) fn settle(&mut self, step: UnreadStep) -> Result<StepEnd> {
        let told = step.told.wait()?;
        let received = Received::of(&told[0], &told[1])?;
        let made = told[2].f_double_value(&[0])? == 0.0;
        self.optimizer.settle(made)?;
        let loss_is_finite = received.mean_loss.is_finite();
        // A loss that is not finite is found with the gradients.
        let not_finite = self.not_finite(received.mean_loss, made || !loss_is_finite);
        self.precision.scaler.update(not_finite.is_none());
        match not_finite {
            None => self.skipped.made(),
            Some(why) => self.skipped.skipped(why)?,
        }
        Ok(received.end_of(step.samples, step.reduced))
    }
}

#[cfg(test)]
#[path = "late_steps_tests.rs"]
mod tests;
