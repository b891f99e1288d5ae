//! From a run in progress to a checkpoint, and to files in the train dir.

use super::matrix_library;
use super::writer::{Contents, NewFile, Writer};
use super::{CheckpointPaths, EarlyStopping, Estimate, History, Progress, Scheduler, Stepper};
use crate::checkpoint::{Checkpoint, Dict, Metadata, Object, OptimizerState, StateEntry, TrainingState, DINGO_VERSION};
use crate::posterior::PosteriorModel;
use crate::settings::{StageSettings, TrainSettings, Value};
use crate::torch_ext::chosen_matrix_library;
use anyhow::{Context, Result};
use indexmap::IndexMap;
use std::path::PathBuf;
use tch::{Device, TchError, Tensor};

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

/// Where training stands.
pub struct Moment<'a> {
    pub model: &'a dyn PosteriorModel,
    pub stepper: &'a Stepper,
    pub scheduler: &'a Scheduler,
    pub stage: &'a StageSettings,
    pub early_stopping: Option<&'a EarlyStopping>,
    /// Epochs completed.
    pub epoch: u64,
    /// Optimizer steps made.
    pub iteration: u64,
    pub progress: Progress,
    /// Of the epoch that `progress` is inside of: see [`LossInfo::sums`](super::LossInfo::sums).
    pub loss_sums: Option<[f64; 2]>,
    /// Each rank's running statistics of batch normalization, `[ranks, n]`, where they differ.
    pub rank_statistics: Option<&'a Tensor>,
}

/// Key of the loss sums under `spmd`.
const LOSS_SUMS: &str = "loss_sums";

/// Key of the ranks' own running statistics under `spmd`.
pub const RANK_STATISTICS: &str = "rank_statistics";

/// The loss sums that a checkpoint holds.
pub fn loss_sums(spmd: &Object) -> Option<[f64; 2]> {
    let sums: Option<Vec<f64>> = spmd.get(LOSS_SUMS)?.as_items()?.iter().map(Object::as_f64).collect();
    sums?.try_into().ok()
}

impl Identity {
    /// Dingo's checkpoint of this moment, its tensors copied; `spmd` holds what Dingo has no place for.
    fn checkpoint(&self, moment: &Moment, with_training_state: bool) -> Result<Checkpoint> {
        let model_state = moment.model.state().state_dict();
        let model_state = model_state
            .into_iter()
            .map(|(name, tensor)| Ok((name, host_copy(&tensor)?)));
        let training = with_training_state.then(|| training_state(moment)).transpose()?;
        let shallow = |object: &Option<Object>| object.as_ref().map(Object::shallow_clone);
        let other = self
            .other_metadata
            .iter()
            .map(|(name, object)| (name.clone(), object.shallow_clone()));
        Ok(Checkpoint {
            model_kwargs: self.settings.raw["model"].clone(),
            model_state: model_state.collect::<Result<_, TchError>>()?,
            epoch: moment.epoch,
            iteration: moment.iteration,
            version: Some(DINGO_VERSION.into()),
            metadata: Metadata {
                dataset_settings: self.dataset_settings.clone(),
                train_settings: self.settings.raw.clone(),
                other: other.collect(),
            },
            training,
            context: shallow(&self.context),
            event_metadata: shallow(&self.event_metadata),
            spmd: Some(Object::Dict(self.spmd(moment))),
        })
    }

    fn spmd(&self, moment: &Moment) -> Dict {
        let mut spmd = Dict::default();
        spmd.set("seed", self.seed);
        spmd.set(matrix_library::KEY, chosen_matrix_library().name());
        spmd.set("progress", moment.progress.to_object());
        spmd.set("complete", moment.progress.stage >= self.settings.stages.len());
        if let Some(sums) = moment.loss_sums {
            spmd.set(LOSS_SUMS, Object::list(sums));
        }
        if let Some(early_stopping) = moment.early_stopping {
            spmd.set("early_stopping", early_stopping.state());
        }
        if let Some(of_ranks) = moment.rank_statistics {
            spmd.set(RANK_STATISTICS, of_ranks.to_device(Device::Cpu));
        }
        spmd.set("scaler", moment.stepper.precision.scaler.state());
        if let Some(norms) = &moment.stepper.norms {
            spmd.set("noise_scale", norms.noise_scale.state());
        }
        spmd
    }
}

fn training_state(moment: &Moment) -> Result<TrainingState, TchError> {
    Ok(TrainingState {
        optimizer_kwargs: moment.stage.raw_optimizer.clone(),
        scheduler_kwargs: moment.stage.raw_scheduler.clone(),
        optimizer: Some(copied(moment.stepper.optimizer.state())?),
        scheduler: Some(moment.scheduler.state()),
    })
}

fn copied(mut optimizer: OptimizerState) -> Result<OptimizerState, TchError> {
    for entry in optimizer.state.values_mut().flat_map(IndexMap::values_mut) {
        if let StateEntry::Tensor(tensor) = entry {
            *tensor = host_copy(tensor)?;
        }
    }
    Ok(optimizer)
}

/// A copy in host memory, which training will not change.
fn host_copy(tensor: &Tensor) -> Result<Tensor, TchError> {
    match tensor.device() {
        Device::Cpu => {
            let mut copy = tensor.f_empty_like()?;
            copy.f_copy_(tensor)?;
            Ok(copy)
        }
        _ => tensor.f_to_device(Device::Cpu),
    }
}

/// The files of a train dir; rank 0 alone has one.
pub struct Recorder {
    paths: CheckpointPaths,
    history: History,
    /// Where the noise scale is asked for.
    noise_scale: Option<History>,
    writer: Writer,
    /// What `model_latest.pt` is, or will be: completed epochs, batches.
    latest: Option<(u64, usize)>,
}

/// What an epoch is remembered by.
pub struct EpochResult {
    pub train_loss: f64,
    pub test_loss: f64,
    /// The learning rate the epoch was trained with.
    pub lr: f64,
    /// The noise scale as it is now known, and the batch size it suggests.
    pub noise_scale: Option<(Estimate, u64)>,
    /// Early stopping is on, and no epoch before was as good.
    pub is_best: bool,
    /// The epoch was the last of this stage.
    pub ends_stage: Option<usize>,
}

impl Recorder {
    /// `latest`: the completed epochs and batches of the `model_latest.pt` that is there.
    pub fn new(
        paths: CheckpointPaths,
        history: History,
        noise_scale: Option<History>,
        latest: Option<(u64, usize)>,
    ) -> Recorder {
        Recorder {
            paths,
            history,
            noise_scale,
            writer: Writer::default(),
            latest,
        }
    }

    /// At the end of an epoch: its row of the history, `model_latest.pt`, and the copies that are due. They are written while
    /// training goes on; those of a stage's end are waited for.
    ///
    /// # Errors
    /// See [`Recorder::save`], and at the end of a stage [`Recorder::finish`].
    pub fn record(&mut self, identity: &Identity, moment: &Moment, result: &EpochResult) -> Result<()> {
        self.history
            .add(moment.epoch, result.train_loss, result.test_loss, &[result.lr]);
        if let (Some(file), Some((estimate, batch_size))) = (&mut self.noise_scale, result.noise_scale) {
            let Estimate {
                noise_scale,
                standard_error,
                square_norm,
                variance,
            } = estimate;
            let numbers = [noise_scale, standard_error, batch_size as f64, square_norm, variance];
            file.add_row(moment.epoch, numbers);
        }
        let mut copies = Vec::new();
        if let Some(permanent) = self.paths.permanent(moment.epoch) {
            log::info!("Copy model to checkpoint {}.", permanent.display());
            copies.push(permanent);
        }
        if let Some(stage) = result.ends_stage {
            let path = self.paths.stage(stage);
            log::info!("Training stage complete. Saving to {}.", path.display());
            copies.push(path);
        }
        let best = result.is_best.then(|| self.paths.best());
        let best = best.map(|path| Ok::<_, anyhow::Error>(file(vec![path], identity.checkpoint(moment, false)?)));
        self.write(identity, moment, best.transpose()?, copies)?;
        match result.ends_stage {
            Some(_) => self.finish(),
            None => Ok(()),
        }
    }

    /// At any moment: `model_latest.pt`, unless it is that of this moment already.
    ///
    /// # Errors
    /// The last two attempts to write files failed, or there is no memory for the copy.
    pub fn save(&mut self, identity: &Identity, moment: &Moment) -> Result<()> {
        if self.latest == Some(at(moment)) {
            return Ok(());
        }
        self.write(identity, moment, None, Vec::new())
    }

    /// The checkpoint that a run which has diverged may be resumed from, once it is on the disk.
    pub fn last_good(&mut self) -> Option<PathBuf> {
        if let Err(error) = self.finish() {
            log::warn!("{error:#}");
        }
        Some(self.paths.latest()).filter(|path| path.exists())
    }

    /// Waits until all files are on the disk.
    ///
    /// # Errors
    /// One could not be written. Those written before are whole.
    pub fn finish(&mut self) -> Result<()> {
        let is_older = || format!("{} is that of an earlier moment", self.paths.latest().display());
        self.writer.finish().with_context(is_older)
    }

    /// The order is that in which they reach the disk. `model_latest.pt` comes last: whatever a run that resumes from it
    /// does not make again must be there.
    fn write(
        &mut self,
        identity: &Identity,
        moment: &Moment,
        best: Option<NewFile>,
        mut copies: Vec<PathBuf>,
    ) -> Result<()> {
        let latest = self.paths.latest();
        log::info!("Saving model to {}.", latest.display());
        copies.push(latest);
        let checkpoint = file(copies, identity.checkpoint(moment, true)?);
        let noise_scale = self.noise_scale.as_ref().and_then(History::file);
        let histories = self.history.file().into_iter().chain(noise_scale);
        let files = histories.chain(best).chain([checkpoint]);
        let is_older = || format!("{} is that of an earlier moment", self.paths.latest().display());
        self.writer.submit(files.collect()).with_context(is_older)?;
        self.latest = Some(at(moment));
        Ok(())
    }
}

fn file(paths: Vec<PathBuf>, checkpoint: Checkpoint) -> NewFile {
    NewFile {
        paths,
        contents: Contents::Checkpoint(Box::new(checkpoint)),
    }
}

fn at(moment: &Moment) -> (u64, usize) {
    (moment.epoch, moment.progress.batches)
}
