//! What trains the network in one stage, and belongs to that stage alone.

use super::stage_state::StageState;
use super::{EarlyStopping, Estimate, Scheduler, Stepper};
use crate::nn::ModuleState;
use crate::settings::{LocalSettings, StageSettings};
use crate::spmd::World;
use anyhow::Result;

pub struct StageTools {
    pub stepper: Stepper,
    pub scheduler: Scheduler,
    pub early_stopping: Option<EarlyStopping>,
    /// Of the epoch that the run is inside of.
    pub loss_sums: Option<[f64; 2]>,
}

impl StageTools {
    /// With the `state` of a new stage, or of a checkpoint inside one. All ranks call this together.
    ///
    /// # Errors
    /// What [`Stepper::new`] says.
    pub fn new(
        world: &World,
        network: &ModuleState,
        state: StageState,
        stage: &StageSettings,
        local: &LocalSettings,
    ) -> Result<StageTools> {
        let mut stepper = Stepper::new(world, network, state.optimizer, stage, local)?;
        stepper.go_on_with(state.scaler, state.noise_scale);
        if let Some(of_ranks) = &state.rank_statistics {
            stepper.statistics.take_own(world, of_ranks)?;
        }
        Ok(StageTools {
            stepper,
            scheduler: state.scheduler,
            early_stopping: state.early_stopping,
            loss_sums: state.loss_sums,
        })
    }

    /// What is known of the gradient noise scale, with the batch size that it suggests for this many ranks; told in the log.
    pub fn noise_scale(&self, ranks: usize) -> Option<(Estimate, u64)> {
        let norms = self.stepper.norms.as_ref()?;
        let Some(estimate) = norms.noise_scale.estimate() else {
            log::info!("Gradient noise scale: not known yet.");
            return None;
        };
        let batch_size = estimate.batch_size(ranks);
        log::info!(
            "Gradient noise scale: {:.0} +- {:.0} samples; it suggests a batch size of {batch_size}.",
            estimate.noise_scale,
            estimate.standard_error
        );
        Some((estimate, batch_size))
    }
}
