//! One epoch: the algorithm, from top to bottom.

use super::{LossInfo, Optimizer, Phase};
use crate::data::Loader;
use crate::nn::Mode;
use crate::posterior::PosteriorModel;
use crate::spmd::{GradientReducer, World};
use anyhow::Result;
use tch::{Kind, Tensor};

/// Trains the network on every batch of the epoch once. The gradient of each step is that of the mean loss over the global
/// batch: every rank scales its share by the global count, and the reduction is a sum.
///
/// # Errors
/// Data that cannot be read, a failing collective, an operation that libtorch refuses.
pub fn train_epoch(
    model: &dyn PosteriorModel,
    loader: &Loader,
    optimizer: &mut Optimizer,
    reducer: &mut GradientReducer,
    epoch: u64,
    info: &mut LossInfo,
) -> Result<()> {
    for (index, batch) in loader.epoch(epoch, 0).enumerate() {
        let batch = batch?;
        info.lap(Phase::Dataloader);

        reducer.zero();
        let loss_sum = model
            .loss(&batch.theta, &batch.context, Mode::Train)?
            .f_sum(Kind::Float)?;
        let mean_share = loss_sum.f_div_scalar(batch.global_count as f64)?;
        reducer.prepare(true)?;
        send_along(reducer, &loss_sum)?;
        mean_share.f_backward()?;
        info.lap(Phase::Network);

        let reduced = reducer.finish()?;
        info.lap(Phase::Aggregation);

        optimizer.step()?;
        info.lap(Phase::Network);

        // A copy: the next step overwrites the bucket, and the loss is read when a line is printed.
        info.update(&reduced.scalars.f_select(0, 0)?.copy(), batch.global_count as u64)?;
        report(info, index)?;
    }
    Ok(())
}

/// The loss rides in a gradient bucket, so that knowing it costs no collective of its own.
fn send_along(reducer: &GradientReducer, loss_sum: &Tensor) -> Result<()> {
    let _no_gradients = tch::no_grad_guard();
    reducer.scalars().f_select(0, 0)?.f_copy_(loss_sum)?;
    Ok(())
}

/// Goes through the test set once, each sample counted once; the mean loss is then that of `info`.
///
/// # Errors
/// As [`train_epoch`].
pub fn test_epoch(
    world: &World,
    model: &dyn PosteriorModel,
    loader: &Loader,
    epoch: u64,
    info: &mut LossInfo,
) -> Result<()> {
    let _no_gradients = tch::no_grad_guard();
    for (index, batch) in loader.epoch(epoch, 0).enumerate() {
        let batch = batch?;
        info.lap(Phase::Dataloader);
        let loss_sum = model
            .loss(&batch.theta, &batch.context, Mode::Eval)?
            .f_sum(Kind::Double)?;
        info.lap(Phase::Network);
        let loss_sum = world.sum_of(loss_sum.f_double_value(&[])?)?;
        info.lap(Phase::Aggregation);
        info.update(&Tensor::from(loss_sum), batch.global_count as u64)?;
        report(info, index)?;
    }
    Ok(())
}

fn report(info: &mut LossInfo, batch: usize) -> Result<()> {
    if log::log_enabled!(log::Level::Info) {
        if let Some(line) = info.line(batch as u64)? {
            log::info!("{line}");
        }
    }
    Ok(())
}
