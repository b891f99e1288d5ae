//! The time of a training step, by a fixed protocol: all ranks begin together, and what counts is from there to the end of
//! the optimizer's work on the slowest one.

use super::statistics::{median, Quartiles};
use super::stopwatch::{PartTimes, Stopwatch};
use super::subject::{again_and_again, Trainee};
use crate::data::{Batch, DataError};
use crate::spmd::{hidden_share, World};
use crate::torch_ext::OpCounter;
use crate::train::{train_step, StepEnd};
use anyhow::Result;
use serde::Serialize;

/// What steps took, over all ranks, in seconds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StepTime {
    /// Of the slowest rank of each step.
    pub time: Quartiles,
    /// The rank whose median is the largest, and that median.
    pub slowest_rank: usize,
    pub slowest_rank_median: f64,
    /// Medians on this rank.
    pub parts: PartTimes,
    pub communication: Communication,
}

/// Of one step on this rank.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Communication {
    /// Reductions of gradients and whatever else: BatchNorm's statistics.
    pub collectives: f64,
    /// Handed to them.
    pub bytes: f64,
    /// Share of the time in which gradients were on their way that was hidden behind the backward pass; none without
    /// communication.
    pub hidden_share: Option<f64>,
}

/// Measures `steps` steps after `warm_up` that do not count, on batches that are there. All ranks call this together.
///
/// # Errors
/// As a step of training.
pub fn measure(
    world: &World,
    trainee: &mut Trainee,
    batches: &[Batch],
    warm_up: usize,
    steps: usize,
) -> Result<StepTime> {
    let mut batches = again_and_again(batches);
    let (mut times, mut parts) = (Vec::with_capacity(steps), Vec::with_capacity(steps));
    let (mut communicating, mut waited) = (0.0, 0.0);
    let [mut collectives, mut bytes] = [0; 2];
    for number in 0..warm_up + steps {
        world.barrier()?;
        let before = [world.traffic().collectives(), world.traffic().bytes()];
        let mut stopwatch = Stopwatch::start(trainee.device);
        let end = step(trainee, &mut batches, number, &mut stopwatch)?;
        let (time, parts_of_step) = stopwatch.stop();
        if number >= warm_up {
            times.push(time);
            parts.push(parts_of_step);
            collectives += world.traffic().collectives() - before[0];
            bytes += world.traffic().bytes() - before[1];
            communicating += end.reduced.communicating.as_secs_f64();
            waited += end.reduced.waited.as_secs_f64();
        }
    }
    let of_ranks = world.gather_slices(&times)?;
    let slowest: Vec<f64> = (0..steps)
        .map(|step| of_ranks.iter().map(|times| times[step]).fold(0.0, f64::max))
        .collect();
    let medians = of_ranks.iter().map(|times| median(times)).enumerate();
    let (slowest_rank, slowest_rank_median) = medians.max_by(|a, b| a.1.total_cmp(&b.1)).unwrap_or_default();
    let [communicating, waited] = [world.sum_of(communicating)?, world.sum_of(waited)?];
    Ok(StepTime {
        time: Quartiles::of(&slowest),
        slowest_rank,
        slowest_rank_median,
        parts: PartTimes::medians(&parts),
        communication: Communication {
            collectives: collectives as f64 / steps as f64,
            bytes: bytes as f64 / steps as f64,
            hidden_share: hidden_share(communicating, waited),
        },
    })
}

/// ATen operations of one step on this rank, nested ones included: forward, backward, optimizer.
///
/// # Errors
/// As a step of training.
pub fn aten_calls(world: &World, trainee: &mut Trainee, batches: &[Batch]) -> Result<u64> {
    let mut batches = again_and_again(batches);
    world.barrier()?;
    let mut stopwatch = Stopwatch::start(trainee.device);
    let counter = OpCounter::start()?;
    step(trainee, &mut batches, 0, &mut stopwatch)?;
    Ok(counter.calls())
}

/// The step that training makes.
pub fn step(
    trainee: &mut Trainee,
    batches: &mut dyn Iterator<Item = Result<Batch, DataError>>,
    number: usize,
    stopwatch: &mut Stopwatch,
) -> Result<StepEnd> {
    let Trainee {
        model,
        stepper,
        interrupts,
        ..
    } = trainee;
    let first_batch = number * stepper.passes;
    train_step(
        model.as_ref(),
        stepper,
        interrupts,
        (1, first_batch),
        batches,
        stopwatch,
    )
}
