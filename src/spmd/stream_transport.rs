//! Carries full buckets to the other ranks on a stream of its own, while the backward pass goes on on another.

use super::error::{Result, SpmdError};
use super::transport::{HandOver, Times, Transport};
use std::sync::{Arc, Mutex, MutexGuard};

/// The two queues of a GPU that the transport gives work to: what it computes, and what it communicates. No call waits for the
/// GPU. What is done on them is apart from when, so that the order can be tested without a GPU.
pub(super) trait Streams: Send {
    /// Marks in the computation that this bucket is full.
    fn mark_full(&mut self, bucket: usize) -> Result<()>;

    /// The communication goes on only when the computation has come to that mark.
    fn communication_waits(&mut self, bucket: usize) -> Result<()>;

    /// Sums the bucket over ranks, in the communication.
    fn all_reduce(&mut self, bucket: usize) -> Result<()>;

    /// Marks in the communication that this bucket is reduced.
    fn mark_reduced(&mut self, bucket: usize) -> Result<()>;

    /// The computation goes on only when the communication has come to that mark.
    fn computation_waits(&mut self, bucket: usize) -> Result<()>;

    /// The end of a step; the times of the last one that are known.
    fn end_step(&mut self) -> Result<Times>;
}

/// Reduces the buckets in a fixed order, the same on all ranks, each as soon as it and those before it are full.
pub(super) struct StreamTransport {
    shared: Arc<Mutex<Shared>>,
    /// Whether buckets are reduced while the backward pass goes on.
    overlap: bool,
}

struct Shared {
    streams: Box<dyn Streams>,
    /// Buckets that were handed over in this step.
    full: Vec<bool>,
    /// Buckets whose reduction is in the communication.
    started: usize,
    /// What went wrong where no one could be told.
    failed: Option<SpmdError>,
}

impl Shared {
    fn take_over(&mut self, bucket: usize) -> Result<()> {
        self.streams.mark_full(bucket)?;
        self.full[bucket] = true;
        while self.full.get(self.started) == Some(&true) {
            let next = self.started;
            self.streams.communication_waits(next)?;
            self.streams.all_reduce(next)?;
            self.streams.mark_reduced(next)?;
            self.started += 1;
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<Times> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        let buckets = self.full.len();
        if self.started < buckets {
            let message = format!("{} of {buckets} buckets were handed over", self.started);
            return Err(SpmdError::Usage(message));
        }
        // The communication does one after the other: with the last, all are reduced.
        self.streams.computation_waits(buckets - 1)?;
        self.full.fill(false);
        self.started = 0;
        self.streams.end_step()
    }
}

impl StreamTransport {
    /// For this many buckets, at least one.
    pub fn new(streams: Box<dyn Streams>, buckets: usize, overlap: bool) -> StreamTransport {
        let shared = Shared {
            streams,
            full: vec![false; buckets],
            started: 0,
            failed: None,
        };
        StreamTransport {
            shared: Arc::new(Mutex::new(shared)),
            overlap,
        }
    }
}

fn locked(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    // A thread that panics ends the job, so a poisoned lock is nobody's concern.
    shared.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

impl Transport for StreamTransport {
    fn hand_over(&self) -> HandOver {
        if !self.overlap {
            return Arc::new(|_| {});
        }
        let shared = self.shared.clone();
        Arc::new(move |bucket| {
            let mut shared = locked(&shared);
            if shared.failed.is_none() {
                shared.failed = shared.take_over(bucket).err();
            }
        })
    }

    /// Does not wait: it is the computation that will, before whatever it is given from here on.
    fn finish(&mut self) -> Result<Times> {
        let mut shared = locked(&self.shared);
        if !self.overlap {
            for bucket in 0..shared.full.len() {
                shared.take_over(bucket)?;
            }
        }
        shared.finish()
    }
}

#[cfg(test)]
#[path = "stream_transport_tests.rs"]
mod tests;
