//! The streams of a GPU, as the gradient reducer uses them.

use super::error::Result;
use super::nccl::DeviceLink;
use super::stream_transport::Streams;
use super::transport::Times;
use crate::torch_ext::cuda::{current_stream, Event, Stream};
use std::sync::Arc;
use std::time::Duration;
use tch::Tensor;

/// NCCL on a stream of its own, beside the one that the network is computed on.
pub(super) struct CudaStreams {
    link: Arc<DeviceLink>,
    communication: Stream,
    buckets: Vec<Tensor>,
    full: Vec<Event>,
    /// Of this step and the one before, in turn: what was measured in a step can be read when the next one ends.
    clocks: [Clock; 2],
    step: usize,
}

/// Marks with times.
struct Clock {
    /// The reduction of each bucket begins, and ends.
    begun: Vec<Event>,
    reduced: Vec<Event>,
    /// The computation has come to where it waits for the last.
    computed: Event,
    used: bool,
}

impl Clock {
    fn new(buckets: usize) -> Result<Clock> {
        Ok(Clock {
            begun: events(buckets, true)?,
            reduced: events(buckets, true)?,
            computed: Event::new(true)?,
            used: false,
        })
    }

    /// Zero where it is not known yet.
    fn read(&self) -> Result<Times> {
        let (Some(last), true) = (self.reduced.last(), self.used) else {
            return Ok(Times::default());
        };
        if !last.is_past()? || !self.computed.is_past()? {
            return Ok(Times::default());
        }
        let mut communicating = 0.0;
        for (begun, reduced) in self.begun.iter().zip(&self.reduced) {
            communicating += begun.milliseconds_until(reduced)?;
        }
        let waited = self.computed.milliseconds_until(last)?;
        let duration = |milliseconds: f64| Duration::from_secs_f64(milliseconds.max(0.0) / 1e3);
        Ok(Times {
            communicating: duration(communicating),
            waited: duration(waited),
        })
    }
}

fn events(count: usize, timed: bool) -> Result<Vec<Event>> {
    (0..count).map(|_| Ok(Event::new(timed)?)).collect()
}

impl CudaStreams {
    /// For these buckets on the link's GPU.
    ///
    /// # Errors
    /// What CUDA says.
    pub fn new(link: Arc<DeviceLink>, buckets: &[Tensor]) -> Result<CudaStreams> {
        Ok(CudaStreams {
            communication: Stream::new(link.device)?,
            full: events(buckets.len(), false)?,
            clocks: [Clock::new(buckets.len())?, Clock::new(buckets.len())?],
            buckets: buckets.iter().map(Tensor::shallow_clone).collect(),
            step: 0,
            link,
        })
    }

    /// Hooks run on libtorch's backward thread, whose stream is that of the forward pass.
    fn computation(&self) -> Result<Stream> {
        Ok(current_stream(self.link.device)?)
    }

    fn clock(&mut self) -> &mut Clock {
        &mut self.clocks[self.step % 2]
    }
}

impl Streams for CudaStreams {
    fn mark_full(&mut self, bucket: usize) -> Result<()> {
        let computation = self.computation()?;
        Ok(self.full[bucket].record(computation)?)
    }

    fn communication_waits(&mut self, bucket: usize) -> Result<()> {
        Ok(self.full[bucket].delay(self.communication)?)
    }

    fn all_reduce(&mut self, bucket: usize) -> Result<()> {
        let communication = self.communication;
        self.clock().begun[bucket].record(communication)?;
        self.link.all_reduce_sum(&self.buckets[bucket], communication)
    }

    fn mark_reduced(&mut self, bucket: usize) -> Result<()> {
        let communication = self.communication;
        Ok(self.clock().reduced[bucket].record(communication)?)
    }

    fn computation_waits(&mut self, bucket: usize) -> Result<()> {
        let computation = self.computation()?;
        let clock = self.clock();
        clock.computed.record(computation)?;
        clock.used = true;
        Ok(clock.reduced[bucket].delay(computation)?)
    }

    fn end_step(&mut self) -> Result<Times> {
        self.step += 1;
        // That of the step before: it is used again from here on.
        self.clock().read()
    }
}
