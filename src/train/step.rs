//! One optimizer step: the algorithm, from top to bottom.

use super::interrupts::{Interrupts, WISHES};
use super::late_steps::UnreadStep;
use super::stepper::Stepper;
use super::{Precision, PHASES};
use crate::data::{Batch, DataError};
use crate::nn::{Mode, TrainingPass};
use crate::posterior::PosteriorModel;
use crate::spmd::{Reduced, RANK_SLOTS};
use anyhow::Result;
use tch::{Kind, Tensor};

/// Places of the numbers that ride along with the gradients: the step's mean loss, then the ranks' wishes.
const LOSS: i64 = 0;
const FIRST_WISH: i64 = 1;

/// Places of what each rank tells the others: its times, then the norm of its own gradient.
const NORM: usize = PHASES;

/// What a step is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepPart {
    /// Waiting for a batch.
    Data,
    Forward,
    /// The reduction of what is complete goes on meanwhile.
    Backward,
    /// Waiting for what is left of it.
    Reduction,
    /// Zeroing gradients, checks, and the optimizer.
    Update,
}

/// Who times the parts of a step.
pub trait StepClock {
    /// Ends a part: the time since the last call counts for it.
    fn lap(&mut self, part: StepPart);

    /// This rank's seconds in each [`Phase`](super::Phase) since the last call, to be told to the other ranks.
    fn take_times(&mut self) -> [f64; PHASES];
}

/// What came of a step. All but `reduced` is the same on all ranks.
pub struct StepEnd {
    pub mean_loss: f64,
    pub loss_is_finite: bool,
    /// Over all ranks.
    pub samples: u64,
    /// Sums over ranks of what each wished.
    pub wishes: [f64; WISHES],
    /// The longest time of any rank for each phase.
    pub slowest: [f64; PHASES],
    /// What the reduction of the gradients took.
    pub reduced: Reduced,
}

/// A step that was begun.
pub enum BegunStep {
    Ended(StepEnd),
    /// The device decides on it, and what came of it is on its way.
    Unread(UnreadStep),
}

impl BegunStep {
    /// What came of it. Steps end in the order in which they were begun, on all ranks.
    ///
    /// # Errors
    /// Of a step that the device decides on, what [`train_step`] says of others: too many of them without a finite loss and
    /// gradient, an operation that failed.
    pub fn end(self, stepper: &mut Stepper) -> Result<StepEnd> {
        match self {
            BegunStep::Ended(end) => Ok(end),
            BegunStep::Unread(step) => stepper.settle(step),
        }
    }
}

/// [`begin_step`], and what came of it.
///
/// # Errors
/// As [`begin_step`] and [`BegunStep::end`].
pub fn train_step(
    model: &dyn PosteriorModel,
    stepper: &mut Stepper,
    interrupts: &mut Interrupts,
    place: (u64, usize),
    batches: &mut dyn Iterator<Item = Result<Batch, DataError>>,
    clock: &mut dyn StepClock,
) -> Result<StepEnd> {
    begin_step(model, stepper, interrupts, place, batches, clock)?.end(stepper)
}

/// Makes an optimizer step of the next `stepper.passes` batches, the first of which has this number in this epoch. The
/// gradient is that of the mean over the passes of the mean loss over the global batch: every rank scales its share by the
/// global count, and the reduction is a sum. All ranks call this together.
///
/// # Errors
/// Batches that end too early or cannot be made, a failing collective, an operation that libtorch refuses, too many steps in
/// a row without a finite loss and gradient.
pub fn begin_step(
    model: &dyn PosteriorModel,
    stepper: &mut Stepper,
    interrupts: &mut Interrupts,
    (epoch, first_batch): (u64, usize),
    batches: &mut dyn Iterator<Item = Result<Batch, DataError>>,
    clock: &mut dyn StepClock,
) -> Result<BegunStep> {
    let passes = stepper.passes;
    stepper.begin()?;
    clock.lap(StepPart::Update);
    let mut step = StepLoss::default();
    for index in 0..passes {
        let batch = next(batches)?;
        clock.lap(StepPart::Data);

        model.state().begin_pass(pass(epoch, first_batch + index, &batch));
        let loss_share = loss_share(model, &stepper.precision, &batch)? / passes as f64;
        step.add(&loss_share, &batch)?;
        clock.lap(StepPart::Forward);
        let is_last = index + 1 == passes;
        stepper.reducer.prepare(is_last)?;
        if is_last {
            send_along(stepper, &step.mean, interrupts.wishes(), clock.take_times())?;
        }
        stepper.backward(&loss_share)?;
        clock.lap(StepPart::Backward);
    }
    let reduced = stepper.reducer.finish()?;
    clock.lap(StepPart::Reduction);

    if stepper.late.is_some() {
        let unread = stepper.step_late(reduced, step.samples)?;
        clock.lap(StepPart::Update);
        return Ok(BegunStep::Unread(unread));
    }
    let received = Received::of(&reduced.scalars, &reduced.of_ranks)?;
    if let Some(norms) = &mut stepper.norms {
        norms.hear(&received.column(NORM));
    }
    stepper.step(&reduced, received.mean_loss, step.samples)?;
    clock.lap(StepPart::Update);
    Ok(BegunStep::Ended(received.end_of(step.samples, reduced)))
}

fn next(batches: &mut dyn Iterator<Item = Result<Batch, DataError>>) -> Result<Batch, DataError> {
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

    let mut numbers = [0.0; 1 + WISHES];
    numbers[FIRST_WISH as usize..].copy_from_slice(&wishes);
    stepper.reducer.set_scalars(&numbers)?;
    let _no_gradients = tch::no_grad_guard();
    stepper.reducer.scalars().f_select(0, LOSS)?.f_copy_(mean)?;
    Ok(())
}

/// What came with a step's gradients.
pub(super) struct Received {
    pub mean_loss: f64,
    wishes: [f64; WISHES],
    /// What each rank told.
    of_ranks: Vec<[f64; RANK_SLOTS]>,
}

impl Received {
    /// The step's mean loss, `[]`, where it came.
    pub fn loss(reduced: &Reduced) -> Result<Tensor> {
        Ok(reduced.scalars.f_select(0, LOSS)?)
    }

    /// From [`Reduced::scalars`] and [`Reduced::of_ranks`]. Where they lie in host memory, reading them waits for nothing.
    pub fn of(scalars: &Tensor, of_ranks: &Tensor) -> Result<Received> {
        let host = |tensor: &Tensor| -> Result<Vec<f64>> {
            let flat = tensor.f_reshape([-1])?.f_to_kind(Kind::Double)?;
            Ok(Vec::try_from(&flat)?)
        };
        let (scalars, told) = (host(scalars)?, host(of_ranks)?);
        let of_rank = |told: &[f64]| std::array::from_fn(|place| told[place]);
        Ok(Received {
            mean_loss: scalars[LOSS as usize],
            wishes: std::array::from_fn(|wish| scalars[FIRST_WISH as usize + wish]),
            of_ranks: told.chunks_exact(RANK_SLOTS).map(of_rank).collect(),
        })
    }

    pub fn end_of(&self, samples: u64, reduced: Reduced) -> StepEnd {
        StepEnd {
            mean_loss: self.mean_loss,
            loss_is_finite: self.mean_loss.is_finite(),
            samples,
            wishes: self.wishes,
            slowest: self.slowest(),
            reduced,
        }
    }

    fn column(&self, place: usize) -> Vec<f64> {
        self.of_ranks.iter().map(|told| told[place]).collect()
    }

    /// The longest time of any rank for each phase.
    fn slowest(&self) -> [f64; PHASES] {
        std::array::from_fn(|phase| self.column(phase).into_iter().fold(0.0, f64::max))
    }
}
