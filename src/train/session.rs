//! A run: trained stage by stage, epoch by epoch, and recorded.

use super::epoch::{test_epoch, train_epoch};
use super::snapshot::{EpochResult, Identity, Moment, Recorder};
use super::{
    Corpus, EarlyStopping, EpochInfo, LossInfo, Optimizer, PrintEvery, Progress, RuntimeLimits, Scheduler, StageLoaders,
};
use crate::checkpoint::{Checkpoint, CheckpointError, TrainingState};
use crate::nn::Mode;
use crate::posterior::PosteriorModel;
use crate::settings::{LocalSettings, StageSettings, Value};
use crate::spmd::{GradientReducer, World};
use anyhow::Result;
use std::path::PathBuf;
use std::time::Instant;

/// Data threads of a rank when the settings do not say. The pipeline makes thousands of samples per second and thread.
const DATA_THREADS: usize = 1;

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// All stages are complete.
    Complete,
    /// Nothing but the test loss was asked for (`local.test_only`).
    Tested,
    /// A limit was reached; the same command goes on.
    Stopped,
}

/// A run, ready to train (see `Session::prepare`).
pub struct Session<'w> {
    pub(super) world: &'w World,
    pub(super) local: LocalSettings,
    pub(super) identity: Identity,
    pub(super) corpus: Corpus,
    pub(super) model: Box<dyn PosteriorModel>,
    /// On rank 0.
    pub(super) recorder: Option<Recorder>,
    pub(super) limits: RuntimeLimits,
    pub(super) progress: Progress,
    /// Epochs completed.
    pub(super) epoch: u64,
    /// Optimizer steps made.
    pub(super) iteration: u64,
    /// Of the checkpoint, until the stage that it was written in takes it.
    pub(super) saved: Option<Saved>,
}

/// What a stage that goes on from a checkpoint takes from it.
pub(super) struct Saved {
    path: PathBuf,
    training: Option<TrainingState>,
    early_stopping: Option<Value>,
}

impl Saved {
    pub fn of(checkpoint: Checkpoint, path: PathBuf) -> Saved {
        let early_stopping = checkpoint
            .spmd
            .as_ref()
            .and_then(|spmd| spmd.get("early_stopping")?.to_value());
        Saved {
            path,
            training: checkpoint.training,
            early_stopping,
        }
    }
}

/// What belongs to one stage alone.
struct StageTools {
    optimizer: Optimizer,
    scheduler: Scheduler,
    early_stopping: Option<EarlyStopping>,
    reducer: GradientReducer,
}

impl Session<'_> {
    /// Trains the stages that are left.
    ///
    /// # Errors
    /// Saved training state that does not fit, and whatever stops an epoch.
    pub fn train(&mut self) -> Result<Outcome> {
        if self.local.test_only {
            return self.test_only();
        }
        while self.progress.stage < self.stages().len() {
            if let Some(outcome) = self.train_stage()? {
                return Ok(outcome);
            }
        }
        Ok(Outcome::Complete)
    }

    /// Reports the test loss with the noise of the present stage; trains and writes nothing.
    fn test_only(&self) -> Result<Outcome> {
        let stage = &self.stages()[self.progress.stage.min(self.stages().len() - 1)];
        let loss = self.test(stage, &self.stage_loaders(stage)?)?;
        log::info!("test loss: {loss:.3}");
        Ok(Outcome::Tested)
    }

    fn stages(&self) -> &[StageSettings] {
        &self.identity.settings.stages
    }

    /// `None` when the stage is over and the run may go on with the next.
    fn train_stage(&mut self) -> Result<Option<Outcome>> {
        let number = self.progress.stage;
        let stage = self.stages()[number].clone();
        let verb = if self.progress.epoch_in_stage == 0 {
            "Beginning"
        } else {
            "Resuming"
        };
        log::info!(
            "\n{verb} training stage {number}. Settings:\n{}",
            self.identity.settings.stage_yaml(number)
        );
        self.freeze_first_layer(number);
        let loaders = self.stage_loaders(&stage)?;
        let mut tools = self.stage_tools(&stage)?;
        self.limits
            .set_stage_end(self.epoch + (stage.epochs - self.progress.epoch_in_stage) as u64);
        let world = self.world;
        while self.progress.stage == number && !self.limits.limits_exceeded(self.epoch, |stop| world.any(stop))? {
            self.train_one_epoch(&stage, &loaders, &mut tools)?;
        }
        let stopped = self.limits.local_limits_exceeded(self.epoch, |stop| world.any(stop))?;
        if stopped && self.progress.stage < self.stages().len() {
            log::info!("Local runtime limits reached. Ending program.");
            return Ok(Some(Outcome::Stopped));
        }
        Ok(None)
    }

    /// The last stage up to this one that says so decides, also when the run was resumed in between.
    fn freeze_first_layer(&self, stage: usize) {
        let state = self.model.state();
        if let Some(freeze) = self.stages()[..=stage]
            .iter()
            .rev()
            .find_map(|stage| stage.freeze_rb_layer)
        {
            state.set_requires_grad("layers_rb", !freeze);
        }
        log::info!("Number of fixed parameters: {}", state.count_frozen());
        log::info!("Number of learnable parameters: {}", state.count_trainable());
    }

    fn stage_loaders(&self, stage: &StageSettings) -> Result<StageLoaders> {
        let threads = self
            .local
            .data_threads_per_rank(self.world.size)
            .unwrap_or(DATA_THREADS);
        let loaders = self
            .corpus
            .loaders(self.world, &self.identity.settings, stage, threads, self.identity.seed);
        self.world.agree(loaders.map_err(Into::into))
    }

    /// New at the beginning of a stage, the checkpoint's inside one.
    fn stage_tools(&mut self, stage: &StageSettings) -> Result<StageTools> {
        let saved = self.saved.take().filter(|_| self.progress.epoch_in_stage > 0);
        let state = self.model.state();
        let restored = restore(stage, state.parameters(), saved);
        let (optimizer, scheduler, early_stopping) = self.world.agree(restored)?;
        let trainable: Vec<_> = state
            .parameters()
            .into_iter()
            .filter(|parameter| parameter.requires_grad())
            .collect();
        let reducer = GradientReducer::new(self.world, &trainable, self.local.bucket_bytes())?;
        Ok(StageTools {
            optimizer,
            scheduler,
            early_stopping,
            reducer,
        })
    }

    fn train_one_epoch(&mut self, stage: &StageSettings, loaders: &StageLoaders, tools: &mut StageTools) -> Result<()> {
        self.epoch += 1;
        let lr = tools.optimizer.lr();
        log::info!("\nStart training epoch {} with lr [{lr:?}]", self.epoch);
        let started = Instant::now();
        let mut info = self.loss_info(Mode::Train, stage.batch_size, loaders.train.len());
        train_epoch(
            self.model.as_ref(),
            &loaders.train,
            &mut tools.optimizer,
            &mut tools.reducer,
            self.epoch,
            &mut info,
        )?;
        let train_loss = info.average()?;
        self.iteration += info.iteration();
        report_duration(started);

        log::info!("Start testing epoch {}", self.epoch);
        let started = Instant::now();
        let test_loss = self.test(stage, loaders)?;
        report_duration(started);

        tools.scheduler.step(&mut tools.optimizer, test_loss);
        let is_best = tools
            .early_stopping
            .as_mut()
            .is_some_and(|early| early.update(train_loss, test_loss));
        let stop_early = tools.early_stopping.as_ref().is_some_and(EarlyStopping::should_stop);
        let number = self.progress.stage;
        self.progress = self.progress.after_epoch(self.stages(), stop_early);
        let ends_stage = (self.progress.stage > number).then_some(number);
        self.record(
            stage,
            tools,
            &EpochResult {
                train_loss,
                test_loss,
                lr,
                is_best,
                ends_stage,
            },
        )?;
        if stop_early {
            log::info!("Early stopping");
        }
        log::info!("Finished training epoch {}.\n", self.epoch);
        Ok(())
    }

    fn test(&self, stage: &StageSettings, loaders: &StageLoaders) -> Result<f64> {
        let mut info = self.loss_info(Mode::Eval, stage.batch_size, loaders.test.len());
        test_epoch(self.world, self.model.as_ref(), &loaders.test, self.epoch, &mut info)?;
        Ok(info.average()?)
    }

    /// Rank 0 writes; a failure there ends the run on all ranks.
    fn record(&self, stage: &StageSettings, tools: &StageTools, result: &EpochResult) -> Result<()> {
        let Some(recorder) = &self.recorder else {
            return self.world.agree(Ok(()));
        };
        let moment = Moment {
            model: self.model.as_ref(),
            optimizer: &tools.optimizer,
            scheduler: &tools.scheduler,
            stage,
            early_stopping: tools.early_stopping.as_ref(),
            epoch: self.epoch,
            iteration: self.iteration,
            progress: self.progress,
        };
        self.world.agree(recorder.record(&self.identity, &moment, result))
    }

    fn loss_info(&self, mode: Mode, batch_size: usize, samples: usize) -> LossInfo {
        let info = EpochInfo {
            mode,
            epoch: self.epoch,
            dataset_len: samples as u64,
            batch_size: batch_size as u64,
            distributed: self.world.size > 1,
        };
        LossInfo::new(info, PrintEvery::Batches(1))
    }
}

/// Optimizer, scheduler and early stopping of a stage, with the saved state when the stage had begun.
fn restore(
    stage: &StageSettings,
    parameters: Vec<tch::Tensor>,
    saved: Option<Saved>,
) -> Result<(Optimizer, Scheduler, Option<EarlyStopping>)> {
    let mut optimizer = Optimizer::new(&stage.optimizer, parameters)?;
    let mut scheduler = Scheduler::new(&stage.scheduler, &mut optimizer);
    let mut early_stopping = stage.early_stopping.as_ref().map(EarlyStopping::new);
    if let Some(Saved {
        path,
        training,
        early_stopping: saved_early_stopping,
    }) = saved
    {
        let missing = |key: &str| CheckpointError::invalid(&path, key, "is missing; without it the stage cannot go on");
        let training = training.ok_or_else(|| missing("optimizer_kwargs"))?;
        optimizer.load_state(&training.optimizer.ok_or_else(|| missing("optimizer_state_dict"))?)?;
        scheduler.load_state(&training.scheduler.ok_or_else(|| missing("scheduler_state_dict"))?)?;
        if let (Some(early_stopping), Some(state)) = (&mut early_stopping, saved_early_stopping) {
            early_stopping.load_state("spmd.early_stopping", &state)?;
        }
    } else {
        log::info!("Initializing new optimizer and scheduler.");
    }
    Ok((optimizer, scheduler, early_stopping))
}

fn report_duration(started: Instant) {
    let seconds = started.elapsed().as_secs();
    log::info!("Done. This took {:2}:{:2} min.", seconds / 60, seconds % 60);
}
