//! Batches of an epoch, in order, made by threads that work ahead of the training.

use std::ops::Range;
use std::sync::Arc;

use super::batch_way::{ArrivingBatch, BatchWay};
use super::pipeline::Pipeline;
use super::prefetch::Prefetch;
use super::random::permutation;
use super::{Batch, DataError};
use tch::Device;

/// The batches of an epoch, in order, where the loader says. After an error there are none. Dropping it stops the threads.
pub struct EpochBatches {
    made: Prefetch<ArrivingBatch>,
}

impl Iterator for EpochBatches {
    type Item = Result<Batch, DataError>;

    fn next(&mut self) -> Option<Self::Item> {
        Some(self.made.next()?.and_then(ArrivingBatch::arrive))
    }
}

/// How an epoch is cut into batches and who makes them.
#[derive(Debug, Clone)]
pub struct LoaderOptions {
    /// Samples of the global batch, over all ranks; at least 1.
    pub batch_size: usize,
    pub rank: usize,
    pub world_size: usize,
    /// A new order each epoch; else that of the indices.
    pub shuffle: bool,
    /// Of the shuffle.
    pub seed: u64,
    /// Threads that make batches; at least one is used.
    pub threads: usize,
}

/// Who sees which sample when. Global batch g of an epoch is `order[g B .. (g + 1) B]`, the last one what is left; each rank
/// makes its contiguous share.
pub struct Loader {
    pipeline: Arc<Pipeline>,
    indices: Arc<[usize]>,
    options: LoaderOptions,
    way: Arc<BatchWay>,
}

impl Loader {
    /// A loader of these samples of the pipeline's dataset.
    ///
    /// Panics if the batch size is 0 or the rank is not below the world size; settings are checked before.
    pub fn new(pipeline: Arc<Pipeline>, indices: Arc<[usize]>, options: LoaderOptions) -> Loader {
        assert!(options.batch_size > 0, "a batch has at least one sample");
        assert!(
            options.rank < options.world_size,
            "rank {} of {}",
            options.rank,
            options.world_size
        );
        Loader {
            pipeline,
            indices,
            options,
            way: Arc::new(BatchWay::to(Device::Cpu)),
        }
    }

    /// The same loader with its batches on this device. The threads that make them also start their copies there, beside the
    /// computation.
    pub fn on(self, device: Device) -> Loader {
        Loader {
            way: Arc::new(BatchWay::to(device)),
            ..self
        }
    }

    /// How many threads make batches from the next epoch on.
    pub fn set_threads(&mut self, threads: usize) {
        self.options.threads = threads;
    }

    /// Samples of an epoch, over all ranks.
    pub fn len(&self) -> usize {
        self.indices.len()
    }

    pub fn is_empty(&self) -> bool {
        self.indices.is_empty()
    }

    /// Batches of an epoch, the same on all ranks.
    pub fn num_batches(&self) -> usize {
        self.len().div_ceil(self.options.batch_size)
    }

    pub fn pipeline(&self) -> &Arc<Pipeline> {
        &self.pipeline
    }

    /// The batches of an epoch from number `first_batch` on. Work on them starts at once.
    pub fn epoch(&self, epoch: u64, first_batch: usize) -> EpochBatches {
        self.batches(epoch, first_batch..self.num_batches())
    }

    /// The batches of an epoch with these numbers. Work on them starts at once.
    pub fn batches(&self, epoch: u64, numbers: Range<usize>) -> EpochBatches {
        let plan = self.plan(epoch);
        let way = Arc::clone(&self.way);
        let make = move |batch| way.send(plan.make(batch)?);
        EpochBatches {
            made: Prefetch::start(numbers, self.options.threads, make),
        }
    }

    /// This rank's samples of a batch, as indices of the dataset.
    pub fn share(&self, epoch: u64, batch: usize) -> Vec<usize> {
        self.plan(epoch).share(batch).indices
    }

    fn plan(&self, epoch: u64) -> EpochPlan {
        let options = self.options.clone();
        let order = options.shuffle.then(|| permutation(options.seed, epoch, self.len()));
        EpochPlan {
            pipeline: Arc::clone(&self.pipeline),
            indices: Arc::clone(&self.indices),
            options,
            epoch,
            order,
        }
    }
}

/// What the threads of an epoch share.
struct EpochPlan {
    pipeline: Arc<Pipeline>,
    indices: Arc<[usize]>,
    options: LoaderOptions,
    epoch: u64,
    /// Places in `indices`; `None` is their own order.
    order: Option<Vec<u32>>,
}

/// A rank's part of a batch.
struct Share {
    /// Samples of the batch, over all ranks.
    global_count: usize,
    /// Where the part begins among them.
    first_sample: usize,
    /// Of the dataset.
    indices: Vec<usize>,
}

impl EpochPlan {
    /// This rank's part of a batch.
    fn share(&self, batch: usize) -> Share {
        let LoaderOptions {
            batch_size,
            rank,
            world_size,
            ..
        } = self.options;
        let start = (batch * batch_size).min(self.indices.len());
        let count = batch_size.min(self.indices.len() - start);
        let Range { start: from, end: to } = share_of(count, rank, world_size);
        let place = |i: usize| self.order.as_ref().map_or(i, |order| order[i] as usize);
        Share {
            global_count: count,
            first_sample: from,
            indices: (start + from..start + to).map(|i| self.indices[place(i)]).collect(),
        }
    }

    fn make(&self, batch: usize) -> Result<Batch, DataError> {
        let share = self.share(batch);
        let (theta, context) = self.pipeline.batch(&share.indices, self.epoch)?;
        Ok(Batch {
            theta,
            context,
            global_count: share.global_count,
            first_sample: share.first_sample,
        })
    }
}

/// Rank `rank`'s part of `count` samples; parts differ by at most one.
pub fn share_of(count: usize, rank: usize, world_size: usize) -> Range<usize> {
    count * rank / world_size..count * (rank + 1) / world_size
}
