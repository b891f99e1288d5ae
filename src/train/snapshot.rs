//! From a run in progress to a checkpoint, and to files in the train dir.

use super::{CheckpointPaths, EarlyStopping, History, Optimizer, Progress, Scheduler};
use crate::checkpoint::{Checkpoint, Dict, Metadata, Object, TrainingState, DINGO_VERSION};
use crate::posterior::PosteriorModel;
use crate::settings::{StageSettings, TrainSettings, Value};
use anyhow::{Context, Result};
use indexmap::IndexMap;

/// The parts of a run that do not change from epoch to epoch but belong into each checkpoint.
pub struct Identity {
    pub dataset_settings: Value,
    pub settings: TrainSettings,
    pub seed: u64,
    /// What a checkpoint that this run goes on from held besides, such as `float32_matmul_precision`.
    pub other_metadata: IndexMap<String, Object>,
    pub context: Option<Object>,
    pub event_metadata: Option<Object>,
}

impl Identity {
    /// Of a new run, or of one that goes on from `checkpoint`.
    pub fn new(
        dataset_settings: Value,
        settings: TrainSettings,
        seed: u64,
        checkpoint: Option<&Checkpoint>,
    ) -> Identity {
        let kept = |object: &Option<Object>| object.as_ref().map(Object::shallow_clone);
        let other = checkpoint.into_iter().flat_map(|checkpoint| &checkpoint.metadata.other);
        Identity {
            dataset_settings,
            settings,
            seed,
            other_metadata: other
                .map(|(name, object)| (name.clone(), object.shallow_clone()))
                .collect(),
            context: checkpoint.and_then(|checkpoint| kept(&checkpoint.context)),
            event_metadata: checkpoint.and_then(|checkpoint| kept(&checkpoint.event_metadata)),
        }
    }
}

/// Where training stands after an epoch.
pub struct Moment<'a> {
    pub model: &'a dyn PosteriorModel,
    pub optimizer: &'a Optimizer,
    pub scheduler: &'a Scheduler,
    pub stage: &'a StageSettings,
    pub early_stopping: Option<&'a EarlyStopping>,
    pub epoch: u64,
    pub iteration: u64,
    pub progress: Progress,
}

impl Identity {
    /// Dingo's checkpoint of this moment; `spmd` holds what Dingo has no place for.
    fn checkpoint(&self, moment: &Moment, with_training_state: bool) -> Checkpoint {
        let mut spmd = Dict::default();
        spmd.set("seed", self.seed);
        spmd.set("progress", moment.progress.to_object());
        spmd.set("complete", moment.progress.stage >= self.settings.stages.len());
        if let Some(early_stopping) = moment.early_stopping {
            spmd.set("early_stopping", early_stopping.state());
        }
        let shallow = |object: &Option<Object>| object.as_ref().map(Object::shallow_clone);
        let other = self
            .other_metadata
            .iter()
            .map(|(name, object)| (name.clone(), object.shallow_clone()));
        Checkpoint {
            model_kwargs: self.settings.raw["model"].clone(),
            model_state: moment.model.state().state_dict(),
            epoch: moment.epoch,
            iteration: moment.iteration,
            version: Some(DINGO_VERSION.into()),
            metadata: Metadata {
                dataset_settings: self.dataset_settings.clone(),
                train_settings: self.settings.raw.clone(),
                other: other.collect(),
            },
            training: with_training_state.then(|| TrainingState {
                optimizer_kwargs: moment.stage.raw_optimizer.clone(),
                scheduler_kwargs: moment.stage.raw_scheduler.clone(),
                optimizer: Some(moment.optimizer.state()),
                scheduler: Some(moment.scheduler.state()),
            }),
            context: shallow(&self.context),
            event_metadata: shallow(&self.event_metadata),
            spmd: Some(Object::Dict(spmd)),
        }
    }
}

/// The files of a train dir; rank 0 alone has one.
pub struct Recorder {
    paths: CheckpointPaths,
    history: History,
}

/// What an epoch is remembered by.
pub struct EpochResult {
    pub train_loss: f64,
    pub test_loss: f64,
    /// The learning rate the epoch was trained with.
    pub lr: f64,
    /// Early stopping is on, and no epoch before was as good.
    pub is_best: bool,
    /// The epoch was the last of this stage.
    pub ends_stage: Option<usize>,
}

impl Recorder {
    pub fn new(paths: CheckpointPaths, history: History) -> Recorder {
        Recorder { paths, history }
    }

    /// Writes the epoch's row of the history, `model_latest.pt`, and the copies that are due.
    ///
    /// # Errors
    /// A file that cannot be written; those written before stay whole.
    pub fn record(&self, identity: &Identity, moment: &Moment, result: &EpochResult) -> Result<()> {
        self.history
            .write(moment.epoch, result.train_loss, result.test_loss, &[result.lr])?;
        let latest = self.paths.latest();
        log::info!("Saving model to {}.", latest.display());
        let checkpoint = identity.checkpoint(moment, true);
        checkpoint
            .save(&latest)
            .context("model_latest.pt is still that of the epoch before")?;
        if let Some(permanent) = self.paths.permanent(moment.epoch) {
            log::info!("Copy model to checkpoint {}.", permanent.display());
            checkpoint.save(&permanent)?;
        }
        if result.is_best {
            identity.checkpoint(moment, false).save(self.paths.best())?;
        }
        if let Some(stage) = result.ends_stage {
            let path = self.paths.stage(stage);
            log::info!("Training stage complete. Saving to {}.", path.display());
            checkpoint.save(&path)?;
        }
        Ok(())
    }
}
