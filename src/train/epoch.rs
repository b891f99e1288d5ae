//! One epoch: the algorithm, from top to bottom.

use super::interrupts::{Interrupt, Interrupts, WISHES};
use super::{LossInfo, Optimizer, Phase};
use crate::data::{Batch, Loader};
use crate::nn::{Mode, TrainingPass};
use crate::posterior::PosteriorModel;
use crate::spmd::{GradientReducer, World};
use anyhow::Result;
use tch::{Kind, Tensor};

/// Places of the numbers that ride along with the gradients: the sum of the batch's losses, then the ranks' wishes.
const LOSS: i64 = 0;
const FIRST_WISH: i64 = 1;

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
    pub optimizer: &'a mut Optimizer,
    pub reducer: &'a mut GradientReducer,
    pub interrupts: &'a mut Interrupts,
}

/// Trains the network on the batches of the epoch from number `first_batch` on, each once. The gradient of each step is that
/// of the mean loss over the global batch: every rank scales its share by the global count, and the reduction is a sum.
///
/// What a step does is a function of the network, the optimizer, the epoch and the batch's number alone, so an epoch that
/// was interrupted goes on as if it had not been.
///
/// # Errors
/// Data that cannot be read, a failing collective, an operation that libtorch refuses.
pub fn train_epoch(training: &mut Training, epoch: u64, first_batch: usize, info: &mut LossInfo) -> Result<EpochEnd> {
    let Training {
        model,
        loader,
        optimizer,
        reducer,
        interrupts,
    } = training;
    interrupts.begin_steps();
    for (index, batch) in (first_batch..).zip(loader.epoch(epoch, first_batch)) {
        let batch = batch?;
        info.lap(Phase::Dataloader);

        reducer.zero();
        model.state().begin_pass(pass(epoch, index, &batch));
        let loss_sum = model
            .loss(&batch.theta, &batch.context, Mode::Train)?
            .f_sum(Kind::Float)?;
        let mean_share = loss_sum.f_div_scalar(batch.global_count as f64)?;
        reducer.prepare(true)?;
        send_along(reducer, &loss_sum, interrupts.wishes())?;
        mean_share.f_backward()?;
        info.lap(Phase::Network);

        let reduced = reducer.finish()?;
        info.lap(Phase::Aggregation);

        optimizer.step()?;
        info.lap(Phase::Network);

        // A copy: the next step overwrites the bucket, and the loss is read when a line is printed.
        info.update(&reduced.scalars.f_select(0, LOSS)?.copy(), batch.global_count as u64)?;
        report(info, index)?;

        if let Some(why) = agreed(&reduced.scalars)? {
            return Ok(EpochEnd::Interrupted {
                batches: index + 1,
                why,
            });
        }
    }
    Ok(EpochEnd::Complete)
}

/// What dropout draws its masks by.
fn pass(epoch: u64, batch: usize, shares: &Batch) -> TrainingPass {
    TrainingPass {
        epoch,
        batch: batch as u64,
        first_sample: shares.first_sample as u64,
    }
}

/// The loss and the wishes ride in a gradient bucket, so that knowing them costs no collective of its own.
fn send_along(reducer: &GradientReducer, loss_sum: &Tensor, wishes: [f64; WISHES]) -> Result<()> {
    let _no_gradients = tch::no_grad_guard();
    let scalars = reducer.scalars();
    scalars.f_select(0, LOSS)?.f_copy_(loss_sum)?;
    scalars
        .f_narrow(0, FIRST_WISH, WISHES as i64)?
        .f_copy_(&Tensor::from_slice(&wishes))?;
    Ok(())
}

/// What the sums of the wishes mean. They lie in host memory, so reading them waits for nothing.
fn agreed(scalars: &Tensor) -> Result<Option<Interrupt>> {
    let mut sums = [0.0; WISHES];
    for (place, sum) in (FIRST_WISH..).zip(&mut sums) {
        *sum = scalars.f_double_value(&[place])?;
    }
    Ok(Interrupts::agreed(sums))
}

/// Goes through the test set once, each sample counted once; the mean loss is then that of `info`, if no rank wished to stop
/// in between.
///
/// # Errors
/// As [`train_epoch`].
pub fn test_epoch(
    world: &World,
    model: &dyn PosteriorModel,
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
        let loss_sum = model
            .loss(&batch.theta, &batch.context, Mode::Eval)?
            .f_sum(Kind::Double)?
            .f_double_value(&[])?;
        info.lap(Phase::Network);
        let [stop, _] = interrupts.wishes();
        let mut sums = [loss_sum, stop];
        world.sum(&mut sums)?;
        let [loss_sum, stop] = sums;
        info.lap(Phase::Aggregation);
        info.update(&Tensor::from(loss_sum), batch.global_count as u64)?;
        report(info, index)?;
        if let Some(why) = Interrupts::agreed([stop, 0.0]) {
            return Ok(EpochEnd::Interrupted {
                batches: index + 1,
                why,
            });
        }
    }
    Ok(EpochEnd::Complete)
}

fn report(info: &mut LossInfo, batch: usize) -> Result<()> {
    if log::log_enabled!(log::Level::Info) {
        if let Some(line) = info.line(batch as u64)? {
            log::info!("{line}");
        }
    }
    Ok(())
}
