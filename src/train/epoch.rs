//! One epoch: all steps, then all tests.

use super::interrupts::{Interrupt, Interrupts};
use super::step::{begin_step, BegunStep};
use super::stepper::Stepper;
use super::{LossInfo, Phase, Precision, PHASES};
use crate::data::{Batch, Loader};
use crate::nn::Mode;
use crate::posterior::PosteriorModel;
use crate::spmd::World;
use anyhow::Result;
use tch::{Kind, Tensor};

/// How far an epoch got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EpochEnd {
    Complete,
    /// All ranks did this many batches of the epoch, and agreed to pause.
    Interrupted {
        batches: usize,
        why: Interrupt,
    },
}

/// Everything that a training step touches.
pub struct Training<'a> {
    pub model: &'a dyn PosteriorModel,
    pub loader: &'a Loader,
    pub stepper: &'a mut Stepper,
    pub interrupts: &'a mut Interrupts,
}

/// Trains the network on the batches of the epoch from number `first_batch` on, each once. `stepper.passes` batches make a
/// step (see [`begin_step`]); those at the end that are too few for one are left out.
///
/// What a step does is a function of the network, the optimizer, the epoch and the batches' numbers alone, so an epoch that
/// was interrupted goes on as if it had not been.
///
/// # Errors
/// Data that cannot be read, a failing collective, an operation that libtorch refuses, too many steps in a row without a
/// finite loss and gradient.
pub fn train_epoch(training: &mut Training, epoch: u64, first_batch: usize, info: &mut LossInfo) -> Result<EpochEnd> {
    let Training {
        model,
        loader,
        stepper,
        interrupts,
    } = training;
    let passes = stepper.passes;
    let last_batch = loader.num_batches() / passes * passes;
    let mut batches = loader.batches(epoch, first_batch..last_batch);
    interrupts.begin_steps();
    // A step that the device decides on, with the number of its last batch: looked at when the next one is begun, so that the
    // device always has work.
    let mut begun_before: Option<(usize, BegunStep)> = None;
    for step_start in (first_batch..last_batch).step_by(passes) {
        let begun = begin_step(*model, stepper, interrupts, (epoch, step_start), &mut batches, info)?;
        let last = step_start + passes - 1;
        let wish = match (begun_before.take(), begun) {
            (None, begun @ BegunStep::Unread(_)) => {
                begun_before = Some((last, begun));
                continue;
            }
            (None, begun) => end_step(begun, last, stepper, info)?,
            (Some((before, step)), begun) => {
                let wish = end_step(step, before, stepper, info)?;
                begun_before = Some((last, begun));
                wish
            }
        };
        if let Some(why) = wish {
            if let Some((last, step)) = begun_before {
                end_step(step, last, stepper, info)?;
            }
            return Ok(EpochEnd::Interrupted { batches: last + 1, why });
        }
    }
    if let Some((last, step)) = begun_before {
        end_step(step, last, stepper, info)?;
    }
    Ok(EpochEnd::Complete)
}

/// Takes note of what came of a step; what the ranks wish.
fn end_step(
    step: BegunStep,
    last_batch: usize,
    stepper: &mut Stepper,
    info: &mut LossInfo,
) -> Result<Option<Interrupt>> {
    let step = step.end(stepper)?;
    info.end_step(step.slowest);
    if step.loss_is_finite {
        info.update(&Tensor::from(step.mean_loss * step.samples as f64), step.samples)?;
        report(info, last_batch)?;
    }
    Ok(Interrupts::agreed(step.wishes))
}

/// Goes through the test set once, each sample counted once; the mean loss is then that of `info`, if no rank wished to stop
/// in between.
///
/// # Errors
/// As [`train_epoch`].
pub fn test_epoch(
    world: &World,
    model: &dyn PosteriorModel,
    precision: &Precision,
    loader: &Loader,
    interrupts: &mut Interrupts,
    epoch: u64,
    info: &mut LossInfo,
) -> Result<EpochEnd> {
    let _no_gradients = tch::no_grad_guard();
    interrupts.begin_steps();
    for (index, batch) in loader.epoch(epoch, 0).enumerate() {
        let batch = batch?;
        info.lap(Phase::Dataloader);
        let loss_sum = loss_sum(model, precision, &batch)?;
        info.lap(Phase::Network);
        let [stop, _] = interrupts.wishes();
        let told = told_by_all(world, loss_sum, stop, info.take_times())?;
        info.lap(Phase::Aggregation);
        info.end_step(told.slowest);
        info.update(&Tensor::from(told.loss_sum), batch.global_count as u64)?;
        report(info, index)?;
        if let Some(why) = Interrupts::agreed([told.stop, 0.0]) {
            return Ok(EpochEnd::Interrupted {
                batches: index + 1,
                why,
            });
        }
    }
    Ok(EpochEnd::Complete)
}

fn loss_sum(model: &dyn PosteriorModel, precision: &Precision, batch: &Batch) -> Result<f64> {
    let _short = precision.autocast()?;
    let loss = model.loss(&batch.theta, &batch.context, Mode::Eval)?;
    Ok(loss.f_sum(Kind::Double)?.f_double_value(&[])?)
}

/// What the ranks learn of one another after a test batch.
struct Told {
    loss_sum: f64,
    stop: f64,
    slowest: [f64; PHASES],
}

/// In one collective, added up in the order of ranks everywhere.
fn told_by_all(world: &World, loss_sum: f64, stop: f64, times: [f64; PHASES]) -> Result<Told> {
    let [dataloader, network, aggregation] = times;
    let of_ranks = world.gather_array([loss_sum, stop, dataloader, network, aggregation])?;
    let sum = |place: usize| of_ranks.iter().map(|told| told[place]).sum();
    let most = |place: usize| of_ranks.iter().map(|told| told[place]).fold(0.0, f64::max);
    Ok(Told {
        loss_sum: sum(0),
        stop: sum(1),
        slowest: [most(2), most(3), most(4)],
    })
}

fn report(info: &mut LossInfo, batch: usize) -> Result<()> {
    if log::log_enabled!(log::Level::Info) {
        if let Some(line) = info.line(batch as u64)? {
            log::info!("{line}");
        }
    }
    Ok(())
}
