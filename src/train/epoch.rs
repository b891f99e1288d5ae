//! One epoch: the algorithm, from top to bottom.

use super::interrupts::{Interrupt, Interrupts, WISHES};
use super::stepper::Stepper;
use super::{LossInfo, Phase, Precision, PHASES};
use crate::data::{Batch, DataError, EpochBatches, Loader};
use crate::nn::{Mode, TrainingPass};
use crate::posterior::PosteriorModel;
use crate::spmd::{Reduced, World, RANK_SLOTS};
use anyhow::Result;
use tch::{Kind, Tensor};

/// Places of the numbers that ride along with the gradients: the step's mean loss, then the ranks' wishes.
const LOSS: i64 = 0;
const FIRST_WISH: i64 = 1;

/// Places of what each rank tells the others: its times, then the norm of its own gradient.
const NORM: usize = PHASES;

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
/// step; those at the end that are too few for one are left out. The gradient of each step is that of the mean over its
/// passes of the mean loss over the global batch: every rank scales its share by the global count, and the reduction is a
/// sum.
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
    for step_start in (first_batch..last_batch).step_by(passes) {
        stepper.begin()?;
        let mut step = StepLoss::default();
        for index in step_start..step_start + passes {
            let batch = next(&mut batches)?;
            info.lap(Phase::Dataloader);

            model.state().begin_pass(pass(epoch, index, &batch));
            let loss_share = loss_share(*model, &stepper.precision, &batch)? / passes as f64;
            step.add(&loss_share, &batch)?;
            let is_last = index + 1 == step_start + passes;
            stepper.reducer.prepare(is_last)?;
            if is_last {
                send_along(stepper, &step.mean, interrupts.wishes(), info.take_times())?;
            }
            stepper.backward(&loss_share)?;
            info.lap(Phase::Network);
        }
        let reduced = stepper.reducer.finish()?;
        info.lap(Phase::Aggregation);

        let received = Received::of(&reduced)?;
        if let Some(norms) = &mut stepper.norms {
            norms.hear(&received.column(NORM));
        }
        let loss_is_finite = stepper.step(&reduced, received.mean_loss, step.samples)?;
        info.lap(Phase::Network);

        info.end_step(received.slowest());
        if loss_is_finite {
            info.update(&Tensor::from(received.mean_loss * step.samples as f64), step.samples)?;
            report(info, step_start + passes - 1)?;
        }
        if let Some(why) = Interrupts::agreed(received.wishes) {
            return Ok(EpochEnd::Interrupted {
                batches: step_start + passes,
                why,
            });
        }
    }
    Ok(EpochEnd::Complete)
}

fn next(batches: &mut EpochBatches) -> Result<Batch, DataError> {
    let ended = || DataError::Compute("the data threads ended before the epoch did".into());
    batches.next().unwrap_or_else(|| Err(ended()))
}

/// What dropout draws its masks by.
fn pass(epoch: u64, batch: usize, shares: &Batch) -> TrainingPass {
    TrainingPass {
        epoch,
        batch: batch as u64,
        first_sample: shares.first_sample as u64,
    }
}

/// This rank's part of the mean loss over the global batch.
fn loss_share(model: &dyn PosteriorModel, precision: &Precision, batch: &Batch) -> Result<Tensor> {
    let _short = precision.autocast()?;
    let loss = model.loss(&batch.theta, &batch.context, Mode::Train)?;
    Ok(loss.f_sum(Kind::Float)?.f_div_scalar(batch.global_count as f64)?)
}

/// The loss of a step's passes.
struct StepLoss {
    /// This rank's part of the mean.
    mean: Tensor,
    /// Over all ranks.
    samples: u64,
}

impl Default for StepLoss {
    fn default() -> Self {
        StepLoss {
            mean: Tensor::from(0.0f32),
            samples: 0,
        }
    }
}

impl StepLoss {
    fn add(&mut self, loss_share: &Tensor, batch: &Batch) -> Result<()> {
        self.mean = self.mean.f_add(&loss_share.f_detach()?)?;
        self.samples += batch.global_count as u64;
        Ok(())
    }
}

/// The loss, the wishes and what a rank tells the others ride in a gradient bucket, so that knowing them costs no collective
/// of its own. The times are those since the last step's reduction.
fn send_along(stepper: &mut Stepper, mean: &Tensor, wishes: [f64; WISHES], times: [f64; PHASES]) -> Result<()> {
    let mut told = [0.0; RANK_SLOTS];
    told[..PHASES].copy_from_slice(&times);
    told[NORM] = stepper.norms.as_ref().map_or(0.0, |norms| norms.own());
    stepper.reducer.set_rank_values(&told)?;

    let _no_gradients = tch::no_grad_guard();
    let scalars = stepper.reducer.scalars();
    scalars.f_select(0, LOSS)?.f_copy_(mean)?;
    scalars
        .f_narrow(0, FIRST_WISH, WISHES as i64)?
        .f_copy_(&Tensor::from_slice(&wishes))?;
    Ok(())
}

/// What came with a step's gradients. It lies in host memory, so reading it waits for nothing.
struct Received {
    mean_loss: f64,
    wishes: [f64; WISHES],
    /// What each rank told.
    of_ranks: Vec<[f64; RANK_SLOTS]>,
}

impl Received {
    fn of(reduced: &Reduced) -> Result<Received> {
        let host = |tensor: &Tensor| -> Result<Vec<f64>> {
            let flat = tensor.f_reshape([-1])?.f_to_kind(Kind::Double)?;
            Ok(Vec::try_from(&flat)?)
        };
        let (scalars, told) = (host(&reduced.scalars)?, host(&reduced.of_ranks)?);
        let of_rank = |told: &[f64]| std::array::from_fn(|place| told[place]);
        Ok(Received {
            mean_loss: scalars[LOSS as usize],
            wishes: std::array::from_fn(|wish| scalars[FIRST_WISH as usize + wish]),
            of_ranks: told.chunks_exact(RANK_SLOTS).map(of_rank).collect(),
        })
    }

    fn column(&self, place: usize) -> Vec<f64> {
        self.of_ranks.iter().map(|told| told[place]).collect()
    }

    /// The longest time of any rank for each phase.
    fn slowest(&self) -> [f64; PHASES] {
        std::array::from_fn(|phase| self.column(phase).into_iter().fold(0.0, f64::max))
    }
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
