//! What belongs to one stage and is kept in its checkpoints.

use super::{EarlyStopping, Optimizer, Progress, Scheduler};
use crate::checkpoint::{Checkpoint, CheckpointError, Dict, Object};
use crate::settings::StageSettings;
use anyhow::{Context, Result};
use std::path::Path;
use tch::Tensor;

/// Keys under a checkpoint's `spmd`.
const LOSS_SUMS: &str = "loss_sums";
const EARLY_STOPPING: &str = "early_stopping";

pub struct StageState {
    pub optimizer: Optimizer,
    pub scheduler: Scheduler,
    pub early_stopping: Option<EarlyStopping>,
    /// Of the epoch that the run is inside of: see [`LossInfo::sums`](super::LossInfo::sums).
    pub loss_sums: Option<[f64; 2]>,
}

impl StageState {
    /// At the beginning of a stage. `parameters`: all of the network's, in order, frozen ones included.
    ///
    /// # Errors
    /// What libtorch refuses.
    pub fn new(stage: &StageSettings, parameters: Vec<Tensor>) -> Result<StageState> {
        let mut optimizer = Optimizer::new(&stage.optimizer, parameters)?;
        let scheduler = Scheduler::new(&stage.scheduler, &mut optimizer);
        Ok(StageState {
            optimizer,
            scheduler,
            early_stopping: stage.early_stopping.as_ref().map(EarlyStopping::new),
            loss_sums: None,
        })
    }

    /// Takes over what the checkpoint at `path` holds, which was written inside the stage. Dingo's holds no early stopping:
    /// its count begins anew. `batches`: how many an epoch has.
    ///
    /// # Errors
    /// State that is missing or does not fit, with file and key.
    pub fn restore(&mut self, checkpoint: &Checkpoint, path: &Path, progress: Progress, batches: usize) -> Result<()> {
        let in_file = || path.display().to_string();
        let missing = |key: &str| CheckpointError::invalid(path, key, "is missing; without it the stage cannot go on");
        let training = checkpoint
            .training
            .as_ref()
            .ok_or_else(|| missing("optimizer_kwargs"))?;
        let optimizer = training
            .optimizer
            .as_ref()
            .ok_or_else(|| missing("optimizer_state_dict"))?;
        let scheduler = training
            .scheduler
            .as_ref()
            .ok_or_else(|| missing("scheduler_state_dict"))?;
        self.optimizer.load_state(optimizer).with_context(in_file)?;
        self.scheduler.load_state(scheduler).with_context(in_file)?;

        let spmd = |key: &str| checkpoint.spmd.as_ref()?.get(key);
        let counted = spmd(EARLY_STOPPING).and_then(Object::to_value);
        if let (Some(early_stopping), Some(counted)) = (&mut self.early_stopping, counted) {
            early_stopping
                .load_state("spmd.early_stopping", &counted)
                .with_context(in_file)?;
        }
        if progress.batches > batches {
            let message = format!("is {}, but an epoch has {batches}", progress.batches);
            return Err(CheckpointError::invalid(path, "spmd.progress.batches", message).into());
        }
        if progress.batches > 0 {
            let sums = spmd(LOSS_SUMS).and_then(loss_sums);
            self.loss_sums = Some(sums.ok_or_else(|| missing("spmd.loss_sums"))?);
        }
        Ok(())
    }

    /// Puts what Dingo has no place for into a checkpoint's `spmd`.
    pub fn add_to(&self, spmd: &mut Dict) {
        if let Some(sums) = self.loss_sums {
            spmd.set(LOSS_SUMS, Object::list(sums));
        }
        if let Some(early_stopping) = &self.early_stopping {
            spmd.set(EARLY_STOPPING, early_stopping.state());
        }
    }
}

fn loss_sums(object: &Object) -> Option<[f64; 2]> {
    let sums: Option<Vec<f64>> = object.as_items()?.iter().map(Object::as_f64).collect();
    sums?.try_into().ok()
}
