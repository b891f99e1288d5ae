//! From gradients to an optimizer step, with what watches over it.

use super::communication::Communication;
use super::late_steps::LateSteps;
use super::part_norms::PartNorms;
use super::skipped_steps::{NotFinite, SkippedSteps};
use super::{GradScaler, NoiseScale, Optimizer, Precision, RunningStatistics};
use crate::nn::ModuleState;
use crate::settings::{LocalSettings, StageSettings};
use crate::spmd::{GradientReducer, Reduced, ReducerOptions, World};
use crate::torch_ext::square_norm;
use anyhow::Result;
use tch::Tensor;

/// What takes steps in a stage.
pub struct Stepper {
    pub optimizer: Optimizer,
    pub reducer: GradientReducer,
    pub precision: Precision,
    pub statistics: RunningStatistics,
    pub communication: Communication,
    pub skipped: SkippedSteps,
    /// Where the noise scale is asked for and can be known.
    pub norms: Option<PartNorms>,
    /// Backward passes whose gradients are averaged for one step.
    pub passes: usize,
    /// Where steps are decided on the device.
    pub late: Option<LateSteps>,
}

impl Stepper {
    /// For the parameters of `state` that are trainable now. All ranks call this together.
    ///
    /// # Errors
    /// What [`GradientReducer::new`] says.
    pub fn new(
        world: &World,
        state: &ModuleState,
        optimizer: Optimizer,
        stage: &StageSettings,
        local: &LocalSettings,
    ) -> Result<Stepper> {
        let mut trainable = state.parameters();
        trainable.retain(Tensor::requires_grad);
        let passes = stage.gradient_updates_per_optimizer_step;
        let norms = local
            .gradient_noise_scale
            .then(|| PartNorms::new(world.size, passes, passes * stage.batch_size));
        if let Some(None) = norms {
            log::warn!(
                "local.gradient_noise_scale needs several ranks or gradient_updates_per_optimizer_step above 1: with one \
                 rank and one pass a step there is nothing to compare"
            );
        }
        let norms = norms.flatten();
        let defaults = ReducerOptions::default();
        let options = ReducerOptions {
            bucket_bytes: local.bucket_bytes(),
            first_bucket_bytes: defaults.first_bucket_bytes.min(local.bucket_bytes()),
            local_norm: norms.is_some(),
            ..defaults
        };
        let precision = Precision::new(stage, world.device());
        let mut late = LateSteps::new(world.device(), &optimizer, norms.as_ref());
        if let Some(late) = &mut late {
            late.follow(&precision.scaler);
        }
        Ok(Stepper {
            optimizer,
            reducer: GradientReducer::with_options(world, &trainable, &options)?,
            precision,
            statistics: RunningStatistics::new(state, !local.sync_batch_norm)?,
            communication: Communication::new(world),
            skipped: SkippedSteps::new(local.max_skipped_steps),
            norms,
            passes,
            late,
        })
    }

    /// Takes over what a checkpoint of this stage holds.
    pub fn go_on_with(&mut self, scaler: GradScaler, noise_scale: NoiseScale) {
        self.precision.scaler = scaler;
        if let Some(late) = &mut self.late {
            late.follow(&self.precision.scaler);
        }
        if let Some(norms) = &mut self.norms {
            norms.noise_scale = noise_scale;
        }
    }

    /// At the beginning of a step.
    pub fn begin(&mut self) -> Result<()> {
        self.communication.begin();
        self.reducer.zero()?;
        self.statistics.keep()
    }

    /// Adds the gradient of `loss_share` (this rank's share of the batch's mean loss, divided by the number of passes) to the
    /// step's.
    pub fn backward(&mut self, loss_share: &Tensor) -> Result<()> {
        match (&self.late, self.precision.scaler.scale()) {
            (Some(late), _) if self.precision.scaler.rule().is_some() => {
                loss_share.f_mul(&late.scale())?.f_backward()?
            }
            (_, 1.0) => loss_share.f_backward()?,
            (_, scale) => loss_share.f_mul_scalar(scale)?.f_backward()?,
        }
        if let Some(norms) = &mut self.norms {
            norms.pass(self.reducer.flat_gradients())?;
        }
        Ok(())
    }

    /// What is not finite of a step's loss and gradient; the latter is that of the loss times the present scale.
    pub(super) fn not_finite(&self, mean_loss: f64, gradient_is_finite: bool) -> Option<NotFinite> {
        match (mean_loss.is_finite(), gradient_is_finite) {
            (true, true) => None,
            (false, _) => Some(NotFinite::Loss),
            (true, false) if self.precision.scaler.scale() > 1.0 => Some(NotFinite::ScaledGradient),
            (true, false) => Some(NotFinite::Gradient),
        }
    }

    /// Makes the step, if loss and gradient are finite. What is looked at are the sums over ranks, the
    /// same bits on all of them, so all make the step or none.
    ///
    /// # Errors
    /// [`TrainError::Diverged`](super::TrainError::Diverged) after too many steps that were not made.
    pub fn step(&mut self, reduced: &Reduced, mean_loss: f64, samples: u64) -> Result<()> {
        self.communication.end(reduced);
        let scale = self.precision.scaler.scale();
        let gradient = square_norm(self.reducer.flat_gradients(), 1.0 / scale)?;
        let not_finite = self.not_finite(mean_loss, gradient.finite);
        self.precision.scaler.update(not_finite.is_none());
        match not_finite {
            None => {
                self.optimizer.step_unscaled(1.0 / scale)?;
                self.skipped.made();
                if let Some(norms) = &mut self.norms {
                    norms.step(gradient.square, samples, reduced.local_square_norm, scale);
                }
            }
            Some(why) => {
                self.statistics.bring_back()?;
                if let Some(norms) = &mut self.norms {
                    norms.skip();
                }
                self.skipped.skipped(why)?;
            }
        }
        Ok(())
    }
}
