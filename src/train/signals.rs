//! SIGTERM, SIGINT and SIGUSR1: what schedulers and users stop a job with.

use signal_hook::consts::{SIGINT, SIGTERM, SIGUSR1};
use signal_hook::iterator;
use signal_hook::low_level::emulate_default_handler;
use std::io;
use std::sync::atomic::{AtomicI32, AtomicU8, Ordering};
use std::sync::Arc;

const STOPPING: [i32; 3] = [SIGTERM, SIGINT, SIGUSR1];

/// Listens for the signals that ask a run to stop. While a run trains they are only noted, and it stops at its next step;
/// before, there is nothing to save, so the process ends at once; afterwards they do what they do to any process.
#[derive(Debug)]
pub struct Signals {
    state: Arc<State>,
}

#[derive(Debug)]
struct State {
    phase: AtomicU8,
    /// The first one noted; 0 is none.
    received: AtomicI32,
}

const PREPARING: u8 = 0;
const TRAINING: u8 = 1;
const OVER: u8 = 2;

impl Signals {
    /// Listens from here on, for the rest of the process. `end_unprepared` is called on another thread for a signal that
    /// comes before [`Signals::training_begins`], and does not return.
    ///
    /// # Errors
    /// If the operating system refuses.
    pub fn listen(end_unprepared: impl Fn(i32) + Send + 'static) -> io::Result<Signals> {
        let state = Arc::new(State {
            phase: AtomicU8::new(PREPARING),
            received: AtomicI32::new(0),
        });
        let mut arriving = iterator::Signals::new(STOPPING)?;
        let shared = Arc::clone(&state);
        let listen = move || {
            for signal in arriving.forever() {
                match shared.phase.load(Ordering::Acquire) {
                    PREPARING => end_unprepared(signal),
                    TRAINING => shared.note(signal),
                    // There is nothing to do about a signal that cannot be passed on.
                    _ => drop(emulate_default_handler(signal)),
                }
            }
        };
        std::thread::Builder::new().name("signals".into()).spawn(listen)?;
        Ok(Signals { state })
    }

    /// Hears none.
    pub fn deaf() -> Signals {
        let state = State {
            phase: AtomicU8::new(OVER),
            received: AtomicI32::new(0),
        };
        Signals { state: Arc::new(state) }
    }

    /// From here on signals are noted.
    pub fn training_begins(&self) {
        self.state.phase.store(TRAINING, Ordering::Release);
    }

    /// The signal that asked this rank to stop.
    pub fn received(&self) -> Option<i32> {
        Some(self.state.received.load(Ordering::Acquire)).filter(|&signal| signal != 0)
    }
}

impl State {
    fn note(&self, signal: i32) {
        let _ = self
            .received
            .compare_exchange(0, signal, Ordering::AcqRel, Ordering::Acquire);
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        self.state.phase.store(OVER, Ordering::Release);
    }
}

/// `SIGTERM`, or the number of a signal that is none of those listened for.
pub fn name(signal: i32) -> String {
    match signal {
        SIGTERM => "SIGTERM".into(),
        SIGINT => "SIGINT".into(),
        SIGUSR1 => "SIGUSR1".into(),
        other => format!("signal {other}"),
    }
}

#[cfg(test)]
impl Signals {
    /// Of a process that gets none.
    pub fn silent() -> Signals {
        Signals {
            state: Arc::new(State {
                phase: AtomicU8::new(TRAINING),
                received: AtomicI32::new(0),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn raise(signal: i32) {
        // SAFETY: a signal that this process listens for.
        unsafe { libc::raise(signal) };
    }

    #[test]
    fn signals_end_the_preparation_and_are_noted_in_training() {
        let (sender, receiver) = crossbeam_channel::bounded(1);
        let signals = Signals::listen(move |signal| sender.send(signal).unwrap()).unwrap();
        raise(SIGUSR1);
        assert_eq!(receiver.recv_timeout(Duration::from_secs(10)), Ok(SIGUSR1));
        assert_eq!(signals.received(), None);

        signals.training_begins();
        raise(SIGTERM);
        while signals.received().is_none() {
            std::thread::yield_now();
        }
        assert_eq!(signals.received(), Some(SIGTERM));
        assert_eq!(name(SIGTERM), "SIGTERM");
        assert!(receiver.is_empty());
    }
}
