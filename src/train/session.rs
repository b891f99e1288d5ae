//! A run: trained stage by stage, epoch by epoch, and recorded.

use super::epoch::{test_epoch, train_epoch, EpochEnd, Training};
use super::interrupts::{Interrupt, Interrupts, StopReason};
use super::snapshot::{EpochResult, Identity, Moment, Recorder};
use super::stage_state::StageState;
use super::stage_tools::StageTools;
use super::{
    compare_replicas, Corpus, EarlyStopping, EpochInfo, LossInfo, Precision, PrintEvery, Progress, RuntimeLimits,
    StageLoaders, TrainError,
};
use crate::nn::Mode;
use crate::posterior::PosteriorModel;
use crate::settings::{LocalSettings, StageSettings};
use crate::spmd::World;
use anyhow::Result;
use std::time::Instant;

/// Data threads of a rank when the settings do not say. The pipeline makes thousands of samples per second and thread.
pub const DATA_THREADS: usize = 1;

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// All stages are complete.
    Complete,
    /// Nothing but the test loss was asked for (`local.test_only`).
    Tested,
    /// A limit was reached or a signal arrived, and a checkpoint is on the disk; the same command goes on.
    Stopped(StopReason),
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
    pub(super) interrupts: Interrupts,
    pub(super) progress: Progress,
    /// Epochs completed.
    pub(super) epoch: u64,
    /// Optimizer steps made.
    pub(super) iteration: u64,
    /// Of the checkpoint, until the stage that it was written in takes it.
    pub(super) resumed: Option<StageState>,
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
    fn test_only(&mut self) -> Result<Outcome> {
        let stage = self.stages()[self.progress.stage.min(self.stages().len() - 1)].clone();
        let loaders = self.stage_loaders(&stage)?;
        match self.test(&stage, &loaders, self.epoch)? {
            Tested::Loss(loss) => {
                log::info!("test loss: {loss:.3}");
                Ok(Outcome::Tested)
            }
            Tested::Stopped => self.stopped(),
        }
    }

    fn stages(&self) -> &[StageSettings] {
        &self.identity.settings.stages
    }

    /// `None` when the stage is over and the run may go on with the next.
    fn train_stage(&mut self) -> Result<Option<Outcome>> {
        let number = self.progress.stage;
        let stage = self.stages()[number].clone();
        let verb = if self.progress.is_inside_stage() {
            "Resuming"
        } else {
            "Beginning"
        };
        log::info!(
            "\n{verb} training stage {number}. Settings:\n{}",
            self.identity.settings.stage_yaml(number)
        );
        self.freeze_first_layer(number);
        let loaders = self.stage_loaders(&stage)?;
        report_left_out(&stage, loaders.train.len());
        let mut tools = self.stage_tools(&stage)?;
        // So that a run which is lost before its first checkpoint need not be prepared again.
        self.save(&stage, &mut tools)?;
        self.limits
            .set_stage_end(self.epoch + (stage.epochs - self.progress.epoch_in_stage) as u64);
        let world = self.world;
        while self.progress.stage == number && !self.limits.limits_exceeded(self.epoch, |stop| world.any(stop))? {
            if self.interrupts.any_signal(world)? || self.train_one_epoch(&stage, &loaders, &mut tools)? == Step::Stop {
                return self.stop(&stage, &mut tools).map(Some);
            }
        }
        let limit_reached = self.limits.local_limits_exceeded(self.epoch, |stop| world.any(stop))?;
        if limit_reached && self.progress.stage < self.stages().len() {
            return self.stop(&stage, &mut tools).map(Some);
        }
        Ok(None)
    }

    /// Brings where the run stands to the disk, and says why it ends.
    fn stop(&mut self, stage: &StageSettings, tools: &mut StageTools) -> Result<Outcome> {
        self.save(stage, tools)?;
        let written = self.recorder.as_mut().map_or(Ok(()), Recorder::finish);
        // All ranks are here when it is written, so that none takes the others down by its exit.
        self.world.agree(written)?;
        self.stopped()
    }

    fn stopped(&self) -> Result<Outcome> {
        let reason = self.interrupts.stop_reason(self.world)?;
        if reason == StopReason::Limit {
            if self.progress.batches > 0 {
                // The one limit that ends a run inside an epoch; the others were told where they were found.
                log::info!("{}", self.limits.time_limit_reached());
            }
            log::info!("Local runtime limits reached. Ending program.");
        } else {
            log::info!("Stop run: {reason} received.");
        }
        Ok(Outcome::Stopped(reason))
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
        let network = self.model.state();
        let state = match self.resumed.take() {
            Some(resumed) => resumed,
            None => {
                log::info!("Initializing new optimizer and scheduler.");
                self.world.agree(StageState::new(stage, network.parameters()))?
            }
        };
        StageTools::new(self.world, network, state, stage, &self.local)
    }

    /// The next epoch, or what is left of it, up to its entry in the history.
    fn train_one_epoch(
        &mut self,
        stage: &StageSettings,
        loaders: &StageLoaders,
        tools: &mut StageTools,
    ) -> Result<Step> {
        let number = self.epoch + 1;
        let lr = tools.stepper.optimizer.lr();
        log::info!("\nStart training epoch {number} with lr [{lr:?}]");
        if self.progress.batches > 0 {
            let (done, batches) = (self.progress.batches, loaders.train.num_batches());
            log::info!("Epoch {number} goes on after {done} of its {batches} batches.");
        }
        let started = Instant::now();
        let Some(train_loss) = self.train_batches(stage, loaders, tools)? else {
            return Ok(Step::Stop);
        };
        report_duration(started);
        if let Some(line) = tools.stepper.communication.take_report() {
            log::info!("{line}");
        }
        if let Some(line) = self.world.memory_report()? {
            log::info!("{line}");
        }
        tools.stepper.statistics.average(self.world)?;
        compare_replicas(self.world, self.model.state())?;

        log::info!("Start testing epoch {number}");
        let started = Instant::now();
        let Tested::Loss(test_loss) = self.test(stage, loaders, number)? else {
            return Ok(Step::Stop);
        };
        report_duration(started);

        tools.scheduler.step(&mut tools.stepper.optimizer, test_loss);
        let is_best = tools
            .early_stopping
            .as_mut()
            .is_some_and(|early| early.update(train_loss, test_loss));
        let stop_early = tools.early_stopping.as_ref().is_some_and(EarlyStopping::should_stop);
        let stage_number = self.progress.stage;
        self.epoch = number;
        self.progress = self.progress.after_epoch(self.stages(), stop_early);
        tools.loss_sums = None;
        let result = EpochResult {
            train_loss,
            test_loss,
            lr,
            noise_scale: tools.noise_scale(self.world.size),
            is_best,
            ends_stage: (self.progress.stage > stage_number).then_some(stage_number),
        };
        self.write(stage, tools, |recorder, identity, moment| {
            recorder.record(identity, moment, &result)
        })?;
        if stop_early {
            log::info!("Early stopping");
        }
        log::info!("Finished training epoch {number}.\n");
        Ok(Step::GoOn)
    }

    /// Trains on the batches of the epoch that are left, with a checkpoint wherever one is due, and gives the epoch's mean
    /// loss; `None` when the run is to stop first.
    fn train_batches(
        &mut self,
        stage: &StageSettings,
        loaders: &StageLoaders,
        tools: &mut StageTools,
    ) -> Result<Option<f64>> {
        let (number, steps_before) = (self.epoch + 1, self.iteration);
        let mut info = self.loss_info(Mode::Train, number, stage.batch_size, loaders.train.len());
        if let Some(sums) = tools.loss_sums {
            info.continue_from(sums);
        }
        loop {
            let mut training = Training {
                model: self.model.as_ref(),
                loader: &loaders.train,
                stepper: &mut tools.stepper,
                interrupts: &mut self.interrupts,
            };
            let end = train_epoch(&mut training, number, self.progress.batches, &mut info);
            let end = end.or_else(|error| self.diverged(error))?;
            self.iteration = steps_before + info.iteration();
            tools.loss_sums = Some(info.sums()?);
            match end {
                EpochEnd::Complete => {
                    self.progress.batches = loaders.train.num_batches();
                    return Ok(Some(info.average()?));
                }
                EpochEnd::Interrupted { batches, why } => {
                    self.progress.batches = batches;
                    match why {
                        Interrupt::Stop => return Ok(None),
                        Interrupt::Checkpoint => self.save(stage, tools)?,
                    }
                }
            }
        }
    }

    /// With the draws of this epoch.
    fn test(&mut self, stage: &StageSettings, loaders: &StageLoaders, epoch: u64) -> Result<Tested> {
        let mut info = self.loss_info(Mode::Eval, epoch, stage.batch_size, loaders.test.len());
        let precision = Precision::new(stage, self.world.device());
        let (model, test, interrupts) = (self.model.as_ref(), &loaders.test, &mut self.interrupts);
        match test_epoch(self.world, model, &precision, test, interrupts, epoch, &mut info)? {
            EpochEnd::Complete => Ok(Tested::Loss(info.average()?)),
            EpochEnd::Interrupted { .. } => Ok(Tested::Stopped),
        }
    }

    /// `model_latest.pt` of the present moment.
    fn save(&mut self, stage: &StageSettings, tools: &mut StageTools) -> Result<()> {
        self.write(stage, tools, Recorder::save)
    }

    /// Rank 0 writes; a failure there ends the run on all ranks.
    fn write(
        &mut self,
        stage: &StageSettings,
        tools: &mut StageTools,
        write: impl FnOnce(&mut Recorder, &Identity, &Moment) -> Result<()>,
    ) -> Result<()> {
        // The checkpoint's network has the average; training goes on as if it had not been written.
        let rank_statistics = tools.stepper.statistics.of_ranks(self.world)?;
        tools.stepper.statistics.average(self.world)?;
        let moment = Moment {
            model: self.model.as_ref(),
            stepper: &tools.stepper,
            scheduler: &tools.scheduler,
            stage,
            early_stopping: tools.early_stopping.as_ref(),
            epoch: self.epoch,
            iteration: self.iteration,
            progress: self.progress,
            loss_sums: tools.loss_sums,
            rank_statistics: rank_statistics.as_ref(),
        };
        let written = self
            .recorder
            .as_mut()
            .map_or(Ok(()), |recorder| write(recorder, &self.identity, &moment));
        if let Some(of_ranks) = &rank_statistics {
            tools.stepper.statistics.take_own(self.world, of_ranks)?;
        }
        self.interrupts.checkpoint_made();
        self.world.agree(written)
    }

    /// All ranks know that the run has diverged; rank 0 tells what is left.
    fn diverged(&mut self, error: anyhow::Error) -> Result<EpochEnd> {
        let mut error = error;
        if let Some(TrainError::Diverged { checkpoint, .. }) = error.downcast_mut() {
            *checkpoint = self.recorder.as_mut().and_then(Recorder::last_good);
            return self.world.agree(Err(error));
        }
        Err(error)
    }

    fn loss_info(&self, mode: Mode, epoch: u64, batch_size: usize, samples: usize) -> LossInfo {
        let info = EpochInfo {
            mode,
            epoch,
            dataset_len: samples as u64,
            batch_size: batch_size as u64,
            distributed: self.world.size > 1,
        };
        LossInfo::new(info, PrintEvery::Batches(1))
    }
}

/// Whether the run goes on after a step of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    GoOn,
    Stop,
}

/// What came of a pass through the test set.
enum Tested {
    Loss(f64),
    /// The run is to stop, and nothing is known.
    Stopped,
}

/// What accumulation leaves out of each epoch.
fn report_left_out(stage: &StageSettings, samples: usize) {
    let passes = stage.gradient_updates_per_optimizer_step;
    let batches = samples.div_ceil(stage.batch_size);
    let left_out = samples.saturating_sub(batches / passes * passes * stage.batch_size);
    if passes > 1 && left_out > 0 {
        log::info!(
            "Each epoch leaves out {left_out} of its {samples} samples: their batches are too few for an optimizer step of \
             {passes} (gradient_updates_per_optimizer_step)."
        );
    }
}

fn report_duration(started: Instant) {
    let seconds = started.elapsed().as_secs();
    log::info!("Done. This took {:2}:{:2} min.", seconds / 60, seconds % 60);
}
