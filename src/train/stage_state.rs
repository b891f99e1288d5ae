//! What belongs to one stage and is kept in its checkpoints.

use super::{snapshot, EarlyStopping, GradScaler, NoiseScale, Optimizer, Precision, Progress, Scheduler};
use crate::checkpoint::{Checkpoint, CheckpointError, Object};
use crate::settings::StageSettings;
use anyhow::{Context, Result};
use std::path::Path;
use tch::{Device, Tensor};

pub struct StageState {
    pub optimizer: Optimizer,
    pub scheduler: Scheduler,
    pub early_stopping: Option<EarlyStopping>,
    pub scaler: GradScaler,
    pub noise_scale: NoiseScale,
    /// Of the epoch that the run is inside of: see [`LossInfo::sums`](super::LossInfo::sums).
    pub loss_sums: Option<[f64; 2]>,
    /// Where each rank has its own: see [`RunningStatistics::of_ranks`](super::RunningStatistics::of_ranks).
    pub rank_statistics: Option<Tensor>,
}

impl StageState {
    /// At the beginning of a stage. `parameters`: all of the network's, in order, frozen ones included.
    ///
    /// # Errors
    /// What libtorch refuses.
    pub fn new(stage: &StageSettings, parameters: Vec<Tensor>) -> Result<StageState> {
        let device = parameters.first().map_or(Device::Cpu, Tensor::device);
        let mut optimizer = Optimizer::new(&stage.optimizer, parameters)?;
        let scheduler = Scheduler::new(&stage.scheduler, &mut optimizer);
        Ok(StageState {
            optimizer,
            scheduler,
            early_stopping: stage.early_stopping.as_ref().map(EarlyStopping::new),
            scaler: Precision::new(stage, device).scaler,
            noise_scale: NoiseScale::default(),
            loss_sums: None,
            rank_statistics: None,
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

        let spmd = |key: &str| checkpoint.spmd.as_ref()?.get(key)?.to_value();
        if let (Some(early_stopping), Some(counted)) = (&mut self.early_stopping, spmd("early_stopping")) {
            early_stopping
                .load_state("spmd.early_stopping", &counted)
                .with_context(in_file)?;
        }
        if let Some(scaler) = spmd("scaler") {
            self.scaler.load_state("spmd.scaler", &scaler).with_context(in_file)?;
        }
        if let Some(noise_scale) = spmd("noise_scale") {
            self.noise_scale
                .load_state("spmd.noise_scale", &noise_scale)
                .with_context(in_file)?;
        }
        let of_ranks = checkpoint
            .spmd
            .as_ref()
            .and_then(|spmd| spmd.get(snapshot::RANK_STATISTICS));
        self.rank_statistics = of_ranks.and_then(Object::as_tensor).map(Tensor::shallow_clone);
        if progress.batches > batches {
            let message = format!("is {}, but an epoch has {batches}", progress.batches);
            return Err(CheckpointError::invalid(path, "spmd.progress.batches", message).into());
        }
        if progress.batches > 0 {
            let sums = checkpoint.spmd.as_ref().and_then(snapshot::loss_sums);
            self.loss_sums = Some(sums.ok_or_else(|| missing("spmd.loss_sums"))?);
        }
        Ok(())
    }
}
