//! Batches of an epoch, in order, made by threads that work ahead of the training.

use std::ops::Range;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::Arc;
use std::thread::JoinHandle;

use crossbeam_channel::{bounded, Receiver, Sender};

use super::pipeline::Pipeline;
use super::random::permutation;
use super::{Batch, DataError};
use crate::torch_ext::threads::limit_this_thread;

/// Finished batches that a thread may have waiting; it works on one more.
const WAITING_BATCHES: usize = 1;

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
        let plan = Arc::new(self.plan(epoch));
        let end = self.num_batches();
        let threads = self.options.threads.clamp(1, end.saturating_sub(first_batch).max(1));
        let start = |thread: usize| {
            let (sender, receiver) = bounded(WAITING_BATCHES);
            let plan = Arc::clone(&plan);
            let batches = (first_batch + thread..end).step_by(threads);
            let worker = move || make_batches(&plan, batches, &sender);
            let worker = std::thread::Builder::new().name(format!("data-{thread}")).spawn(worker);
            // If there is no thread, its sender is gone, and that is an error when its batch is asked for.
            (
                receiver,
                worker
                    .inspect_err(|error| log::error!("cannot start a data thread: {error}"))
                    .ok(),
            )
        };
        let (receivers, workers): (Vec<_>, Vec<_>) = (0..threads).map(start).unzip();
        EpochBatches {
            receivers,
            workers: workers.into_iter().flatten().collect(),
            made: 0,
            left: first_batch..end,
        }
    }

    /// This rank's samples of a batch, as indices of the dataset.
    pub fn share(&self, epoch: u64, batch: usize) -> Vec<usize> {
        self.plan(epoch).share(batch).1
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

impl EpochPlan {
    /// Samples in the global batch, and this rank's.
    fn share(&self, batch: usize) -> (usize, Vec<usize>) {
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
        (
            count,
            (start + from..start + to).map(|i| self.indices[place(i)]).collect(),
        )
    }

    fn make(&self, batch: usize) -> Result<Batch, DataError> {
        let (global_count, indices) = self.share(batch);
        let (theta, context) = self.pipeline.batch(&indices, self.epoch)?;
        Ok(Batch {
            theta,
            context,
            global_count,
        })
    }
}

/// Rank `rank`'s part of `count` samples; parts differ by at most one.
pub fn share_of(count: usize, rank: usize, world_size: usize) -> Range<usize> {
    count * rank / world_size..count * (rank + 1) / world_size
}

/// What a data thread does: its batches one by one, until the last one, an error, or nobody listens any more.
fn make_batches(plan: &EpochPlan, batches: impl Iterator<Item = usize>, sender: &Sender<Result<Batch, DataError>>) {
    // The cores belong to the training; a data thread is one thread.
    limit_this_thread(1);
    for batch in batches {
        let made = catch_unwind(AssertUnwindSafe(|| plan.make(batch)));
        let made = made.unwrap_or_else(|panic| Err(DataError::Compute(panic_message(&*panic))));
        let failed = made.is_err();
        if sender.send(made).is_err() || failed {
            return;
        }
    }
}

fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied());
    format!("a data thread panicked: {}", text.unwrap_or("no message"))
}

/// The batches of an epoch, in order. After an error there are none. Dropping it stops the threads, after the batches they
/// are at.
pub struct EpochBatches {
    /// One per thread; the threads take batches in turn, so batches are taken from them in turn.
    receivers: Vec<Receiver<Result<Batch, DataError>>>,
    workers: Vec<JoinHandle<()>>,
    made: usize,
    left: Range<usize>,
}

impl Iterator for EpochBatches {
    type Item = Result<Batch, DataError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.left.next()?;
        let gone = || {
            Err(DataError::Compute(
                "a data thread ended before its work was done".into(),
            ))
        };
        let batch = self.receivers[self.made % self.receivers.len()]
            .recv()
            .unwrap_or_else(|_| gone());
        self.made += 1;
        if batch.is_err() {
            self.left = 0..0;
        }
        Some(batch)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (0, Some(self.left.len()))
    }
}

impl Drop for EpochBatches {
    fn drop(&mut self) {
        // Without receivers, sending fails and the threads end.
        self.receivers.clear();
        for worker in self.workers.drain(..) {
            // Its panics were caught; there is nothing to learn from the join.
            let _ = worker.join();
        }
    }
}
