//! Carries full buckets to the other ranks while the backward pass goes on.
//!
//! On the host a non-blocking MPI call alone overlaps nothing, since MPI moves data only inside its calls. So each rank
//! has one communication thread, which starts the buckets in a fixed order (the same on all ranks) and sees them
//! through.

use super::communicator::{Combine, Communicator, Pending};
use super::error::{Result, SpmdError};
use super::number::Element;
use crossbeam_channel::{bounded, unbounded, Receiver, Sender};
use std::collections::VecDeque;
use std::ffi::c_void;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long the thread sleeps between looks at what is under way, at first and at most. Naps instead of a busy wait
/// leave the core to the backward pass where a rank has no core to spare.
const SHORTEST_NAP: Duration = Duration::from_micros(5);
const LONGEST_NAP: Duration = Duration::from_micros(200);

/// The memory of a bucket.
#[derive(Clone, Copy)]
pub(super) struct Memory {
    pub data: *mut c_void,
    pub count: usize,
    pub element: Element,
}

// SAFETY: the reducer keeps the tensor alive, and lets it alone from handing it over until `finish`.
unsafe impl Send for Memory {}

/// What a hook calls with the bucket that is full.
pub(super) type HandOver = Arc<dyn Fn(usize) + Send + Sync>;

/// Sums the buckets of a step over ranks.
pub(super) trait Transport {
    /// What to call when a bucket is full: once for each bucket in each step, in any order, on any thread.
    fn hand_over(&self) -> HandOver;

    /// After this, whatever is computed sees the buckets reduced. On the host that means to wait for the last of them.
    fn finish(&mut self) -> Result<Times>;
}

/// For how long any reduction was under way, and the computation waited.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Times {
    pub communicating: Duration,
    pub waited: Duration,
}

/// Reduces in `finish`, on the calling thread: for an MPI that allows no other, and to measure what overlap gains.
pub(super) struct SerialTransport {
    pub communicator: Arc<Communicator>,
    pub buckets: Vec<Memory>,
    pub delay: Duration,
}

impl Transport for SerialTransport {
    fn hand_over(&self) -> HandOver {
        Arc::new(|_| {})
    }

    fn finish(&mut self) -> Result<Times> {
        let begin = Instant::now();
        for bucket in &self.buckets {
            // SAFETY: the memory of a live bucket, which nobody touches before `finish` returns.
            unsafe {
                self.communicator
                    .all_reduce(bucket.data, bucket.count, bucket.element, Combine::Sum)?
            };
            std::thread::sleep(self.delay);
        }
        let communicating = begin.elapsed();
        Ok(Times {
            communicating,
            waited: communicating,
        })
    }
}

enum Message {
    Full(usize),
    Stop,
}

/// The communication thread, seen from the main thread. Dropping it stops the thread, also amidst a step; MPI may then
/// still write into the buckets.
pub(super) struct ThreadTransport {
    messages: Sender<Message>,
    finished: Receiver<Result<Duration>>,
    thread: Option<JoinHandle<()>>,
}

impl ThreadTransport {
    /// `delay` lengthens the way of each bucket, one after the other, to try out a slow network.
    pub fn start(communicator: Arc<Communicator>, buckets: Vec<Memory>, delay: Duration) -> Result<ThreadTransport> {
        let (messages, inbox) = unbounded();
        let (outcome, finished) = bounded(1);
        let work = Communication {
            communicator,
            buckets,
            delay,
            inbox,
        };
        let thread = std::thread::Builder::new()
            .name("gradients".into())
            .spawn(move || work.run(&outcome))
            .map_err(|error| SpmdError::Usage(format!("the communication thread does not start: {error}")))?;
        Ok(ThreadTransport {
            messages,
            finished,
            thread: Some(thread),
        })
    }
}

impl Transport for ThreadTransport {
    fn hand_over(&self) -> HandOver {
        let messages = self.messages.clone();
        Arc::new(move |bucket| {
            // The thread ends early only with an error, which `finish` reports.
            let _ = messages.send(Message::Full(bucket));
        })
    }

    fn finish(&mut self) -> Result<Times> {
        let begin = Instant::now();
        let ended = || SpmdError::Usage("the communication thread has ended".into());
        let communicating = self.finished.recv().unwrap_or_else(|_| Err(ended()))?;
        Ok(Times {
            communicating,
            waited: begin.elapsed(),
        })
    }
}

impl Drop for ThreadTransport {
    fn drop(&mut self) {
        let _ = self.messages.send(Message::Stop);
        if let Some(thread) = self.thread.take() {
            // A panic there has ended the job already.
            let _ = thread.join();
        }
    }
}

/// What the communication thread works with.
struct Communication {
    communicator: Arc<Communicator>,
    buckets: Vec<Memory>,
    delay: Duration,
    inbox: Receiver<Message>,
}

impl Communication {
    fn run(&self, outcome: &Sender<Result<Duration>>) {
        loop {
            let result = match self.step() {
                Ok(Some(communicating)) => Ok(communicating),
                Ok(None) => return,
                Err(error) => Err(error),
            };
            let failed = result.is_err();
            if outcome.send(result).is_err() || failed {
                return;
            }
        }
    }

    /// Reduces each bucket once; returns for how long any was under way, or nothing when told to stop.
    fn step(&self) -> Result<Option<Duration>> {
        let mut step = Step {
            full: vec![false; self.buckets.len()],
            ..Step::default()
        };
        let mut nap = SHORTEST_NAP;
        while step.done < self.buckets.len() {
            // With nothing under way there is nothing to do but wait for a full bucket.
            let message = match step.under_way.is_empty() {
                true => self.inbox.recv().ok().or(Some(Message::Stop)),
                false => self.inbox.recv_timeout(nap).ok(),
            };
            match message {
                Some(Message::Full(bucket)) => step.full[bucket] = true,
                Some(Message::Stop) => return Ok(None),
                None => {}
            }
            let moved = self.start_full(&mut step)? | self.see_through(&mut step)?;
            nap = if moved {
                SHORTEST_NAP
            } else {
                (nap * 2).min(LONGEST_NAP)
            };
        }
        Ok(Some(step.communicating))
    }

    /// Starts what is full, in order; true if there was any.
    fn start_full(&self, step: &mut Step) -> Result<bool> {
        let before = step.started;
        while step.full.get(step.started) == Some(&true) {
            let Memory { data, count, element } = self.buckets[step.started];
            // SAFETY: the reducer lets a bucket that it has handed over alone until `finish`, and keeps its memory.
            let pending = unsafe { self.communicator.start_all_reduce_sum(data, count, element)? };
            if step.under_way.is_empty() {
                step.since = Instant::now();
            }
            step.under_way.push_back(pending);
            step.started += 1;
        }
        Ok(step.started > before)
    }

    /// Moves data and takes note of what is complete; true if there was any.
    fn see_through(&self, step: &mut Step) -> Result<bool> {
        let before = step.done;
        while let Some(first) = step.under_way.front_mut() {
            if !first.done()? || step.since.elapsed() < self.delay {
                break;
            }
            step.under_way.pop_front();
            step.done += 1;
            step.communicating += step.since.elapsed();
            step.since = Instant::now();
        }
        Ok(step.done > before)
    }
}

/// How far a step has come.
struct Step {
    full: Vec<bool>,
    started: usize,
    done: usize,
    under_way: VecDeque<Pending>,
    /// Since when the first of those under way is the first.
    since: Instant,
    communicating: Duration,
}

impl Default for Step {
    fn default() -> Self {
        let (full, under_way) = (Vec::new(), VecDeque::new());
        Step {
            full,
            started: 0,
            done: 0,
            under_way,
            since: Instant::now(),
            communicating: Duration::ZERO,
        }
    }
}
