//! Looks after the collectives on GPUs: which of them are done, and what has gone wrong with others.
//!
//! NCCL's calls return before anything has happened, so nobody is told when a collective fails or never ends. A thread looks
//! several times a second. It finds out what is done by marks that it leaves on the streams itself, so that the way of the
//! data stays free of them.

use super::arrivals::Arrivals;
use super::error::{Result, SpmdError};
use super::failure::{self, GENERAL_FAILURE};
use super::nccl::{DeviceLink, Told};
use crate::torch_ext::cuda::Event;
use crate::torch_ext::TorchExtError;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{mpsc, Arc};
use std::thread::JoinHandle;
use std::time::Duration;

/// How often the thread looks.
const PERIOD: Duration = Duration::from_millis(100);

/// How long a job that ends waits for NCCL to take back what is under way: GPUs that still wait for others would hold up the
/// end of their processes.
const TAKING_BACK: Duration = Duration::from_secs(2);

/// A communicator, as the watch sees it.
trait Line: Send {
    fn purpose(&self) -> &'static str;

    fn arrivals(&self) -> &Arrivals;

    /// What has gone wrong, if anything has.
    fn health(&self) -> std::result::Result<(), TorchExtError>;

    /// Leaves a mark behind what NCCL was told so far; the number of the last collective before it.
    fn mark(&mut self) -> std::result::Result<u64, TorchExtError>;

    /// Whether the GPU has come to the mark.
    fn is_past_mark(&self) -> std::result::Result<bool, TorchExtError>;

    fn abort(&self);
}

struct CudaLine {
    link: Arc<DeviceLink>,
    mark: Event,
}

impl Line for CudaLine {
    fn purpose(&self) -> &'static str {
        self.link.purpose
    }

    fn arrivals(&self) -> &Arrivals {
        &self.link.arrivals
    }

    fn health(&self) -> std::result::Result<(), TorchExtError> {
        self.link.health()
    }

    fn mark(&mut self) -> std::result::Result<u64, TorchExtError> {
        let Some(Told { number, on }) = self.link.last_told() else {
            return Ok(0);
        };
        self.mark.record(on)?;
        Ok(number)
    }

    fn is_past_mark(&self) -> std::result::Result<bool, TorchExtError> {
        self.mark.is_past()
    }

    fn abort(&self) {
        // The job ends in any case.
        let _ = self.link.abort();
    }
}

/// A line, and up to which collective its mark is behind.
struct Watched {
    line: Box<dyn Line>,
    marked: Option<u64>,
}

impl Watched {
    /// Takes note of what is done.
    ///
    /// # Errors
    /// What has gone wrong, with the operation.
    fn look(&mut self, limit: Option<Duration>) -> std::result::Result<(), String> {
        let (purpose, completed) = (self.line.purpose(), self.line.arrivals().completed());
        let in_operation = |what: String| format!("{purpose}, collective {} on the GPU: {what}", completed + 1);
        self.follow().map_err(|error| in_operation(error.0))?;
        match limit.and_then(|limit| self.line.arrivals().overdue(limit).map(|_| limit)) {
            Some(limit) => Err(in_operation(format!(
                "has not completed within {} s (local.collective_timeout)",
                limit.as_secs_f64()
            ))),
            None => Ok(()),
        }
    }

    fn follow(&mut self) -> std::result::Result<(), TorchExtError> {
        self.line.health()?;
        if let Some(number) = self.marked {
            if !self.line.is_past_mark()? {
                return Ok(());
            }
            self.line.arrivals().complete_up_to(number);
            self.marked = None;
        }
        if self.line.arrivals().begun() > self.line.arrivals().completed() {
            let number = self.line.mark()?;
            // Another may be on its way into NCCL, which is not behind the mark.
            self.marked = (number > self.line.arrivals().completed()).then_some(number);
        }
        Ok(())
    }
}

/// Stops with this value.
pub(super) struct NcclWatch {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl NcclWatch {
    /// Whatever goes wrong ends the job, with the name of this rank and the operation; so does what takes longer than `limit`.
    ///
    /// # Errors
    /// What CUDA says, or the system gives no thread.
    pub fn start(links: &[Arc<DeviceLink>], who: String, limit: Option<Duration>) -> Result<NcclWatch> {
        let line = |link: &Arc<DeviceLink>| -> Result<Watched> {
            let (link, mark) = (link.clone(), Event::new(false)?);
            Ok(Watched {
                line: Box::new(CudaLine { link, mark }),
                marked: None,
            })
        };
        let mut lines = links.iter().map(line).collect::<Result<Vec<_>>>()?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let watch = move || {
            while !stopped.load(Ordering::Acquire) {
                std::thread::park_timeout(limit.map_or(PERIOD, |limit| limit.min(PERIOD)));
                let trouble = lines.iter_mut().find_map(|watched| watched.look(limit).err());
                if let Some(trouble) = trouble {
                    eprintln!("Error: {who}: {trouble}");
                    take_back(std::mem::take(&mut lines));
                    failure::abort_job(GENERAL_FAILURE);
                }
            }
        };
        let thread = std::thread::Builder::new()
            .name("nccl-watch".into())
            .spawn(watch)
            .map_err(|error| SpmdError::Usage(format!("the watch over NCCL does not start: {error}")))?;
        Ok(NcclWatch {
            stop,
            thread: Some(thread),
        })
    }
}

impl Drop for NcclWatch {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // A panic there has ended the job already.
            let _ = thread.join();
        }
    }
}

/// Aborts the communicators, as far as that goes in the time that there is.
fn take_back(lines: Vec<Watched>) {
    let (done, wait) = mpsc::channel();
    let abort = move || {
        lines.iter().for_each(|watched| watched.line.abort());
        let _ = done.send(());
    };
    if std::thread::Builder::new().spawn(abort).is_ok() {
        let _ = wait.recv_timeout(TAKING_BACK);
    }
}

#[cfg(test)]
#[path = "nccl_watch_tests.rs"]
mod tests;
