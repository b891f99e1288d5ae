//! Samples per second of the data pipeline alone, and of training with the pipeline at work.

use super::step_time::step;
use super::stopwatch::{synchronize, Stopwatch};
use super::subject::Trainee;
use crate::data::{Batch, DataError, EpochBatches, Loader};
use crate::spmd::World;
use anyhow::Result;
use std::time::{Duration, Instant};

/// How long the data pipeline is watched.
const DATA_TIME: Duration = Duration::from_secs(3);

/// The full batches of one epoch after another.
struct Batches<'a> {
    loader: &'a Loader,
    per_epoch: usize,
    epoch: u64,
    current: EpochBatches,
}

impl<'a> Batches<'a> {
    fn new(loader: &'a Loader, batch_size: usize) -> Result<Batches<'a>> {
        let per_epoch = Trainee::full_batches(loader, batch_size)?;
        Ok(Batches {
            loader,
            per_epoch,
            epoch: 1,
            current: loader.batches(1, 0..per_epoch),
        })
    }
}

impl Iterator for Batches<'_> {
    type Item = Result<Batch, DataError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.current.next().or_else(|| {
            self.epoch += 1;
            self.current = self.loader.batches(self.epoch, 0..self.per_epoch);
            self.current.next()
        })
    }
}

/// Samples per second that the data threads of all ranks make when nothing else works.
///
/// # Errors
/// Data that cannot be read.
pub fn of_data(world: &World, loader: &Loader, batch_size: usize) -> Result<f64> {
    let mut batches = Batches::new(loader, batch_size)?;
    let mut make = || -> Result<usize> {
        let made = batches.next().transpose()?;
        Ok(made.map_or(0, |batch| batch.theta.size()[0] as usize))
    };
    make()?;
    world.barrier()?;
    let begin = Instant::now();
    let mut samples = 0;
    while begin.elapsed() < DATA_TIME {
        samples += make()?;
    }
    Ok(world.sum_of(samples as f64 / begin.elapsed().as_secs_f64())?)
}

/// Samples per second of training as it is: steps without a barrier between them, while the data threads work ahead on the
/// same cores. The epochs are as long as the dataset's, so what their beginnings cost is included.
///
/// # Errors
/// As a step of training.
pub fn of_training(world: &World, trainee: &mut Trainee, warm_up: usize, steps: usize) -> Result<Option<f64>> {
    // Its place is empty meanwhile.
    let Some(loader) = trainee.loader.take() else {
        return Ok(None);
    };
    let mut batches = Batches::new(&loader, trainee.batch_size())?;
    let mut begin = Instant::now();
    for number in 0..warm_up + steps {
        if number == warm_up {
            world.barrier()?;
            synchronize(trainee.device);
            begin = Instant::now();
        }
        let mut stopwatch = Stopwatch::start(trainee.device);
        step(trainee, &mut batches, number, &mut stopwatch)?;
    }
    synchronize(trainee.device);
    let slowest = world.max_of(begin.elapsed().as_secs_f64())?;
    drop(batches);
    trainee.loader = Some(loader);
    Ok(Some((steps * trainee.effective_batch_size()) as f64 / slowest))
}
