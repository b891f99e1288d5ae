//! What interrupts an epoch: a signal, a time limit, a checkpoint that is due. The ranks agree on it without a collective
//! of their own: each one's wishes are summed along with the gradients of a step, and all act on the sum after that step.

use super::signals::{self, Signals};
use super::RuntimeLimits;
use crate::spmd::{SpmdError, World};
use std::fmt;
use std::time::{Duration, Instant};

/// How many numbers [`Interrupts::wishes`] are.
pub const WISHES: usize = 2;

/// What all ranks do after the step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interrupt {
    /// Write a checkpoint and end the run.
    Stop,
    /// Write a checkpoint and go on.
    Checkpoint,
}

/// Why a run ends before its last stage does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopReason {
    /// A limit of `local.runtime_limits`.
    Limit,
    /// This signal.
    Signal(i32),
}

/// What this rank wishes, from step to step.
#[derive(Debug)]
pub struct Interrupts {
    signals: Signals,
    time_limit: Option<Instant>,
    /// `local.checkpoint_minutes`, on the rank that decides: clocks of several would only make more checkpoints.
    checkpoint_every: Option<Duration>,
    last_checkpoint: Instant,
    /// The last step under way; none at the beginning of a run of steps.
    step_start: Option<Instant>,
}

impl Interrupts {
    /// From the beginning of training on; `checkpoint_every` counts on rank 0.
    pub fn new(
        world: &World,
        signals: Signals,
        limits: &RuntimeLimits,
        checkpoint_every: Option<Duration>,
    ) -> Interrupts {
        signals.training_begins();
        Interrupts {
            signals,
            time_limit: limits.time_limit(),
            checkpoint_every: checkpoint_every.filter(|_| world.is_root()),
            last_checkpoint: Instant::now(),
            step_start: None,
        }
    }

    /// Nothing ever interrupts: for tests and measurements.
    pub fn never() -> Interrupts {
        Interrupts {
            signals: Signals::deaf(),
            time_limit: None,
            checkpoint_every: None,
            last_checkpoint: Instant::now(),
            step_start: None,
        }
    }

    /// The steps from here on follow one another.
    pub fn begin_steps(&mut self) {
        self.step_start = None;
    }

    /// A checkpoint was made: the time to the next begins.
    pub fn checkpoint_made(&mut self) {
        self.last_checkpoint = Instant::now();
    }

    /// To be called once in each step: whether this rank wishes to stop after it and whether it wishes a checkpoint, 1 for
    /// yes and 0 for no, to be summed over the ranks.
    pub fn wishes(&mut self) -> [f64; WISHES] {
        let now = Instant::now();
        let step = self.step_start.map_or(Duration::ZERO, |start| now - start);
        self.step_start = Some(now);
        // One step is under way; if the next one would end after the limit, this is the last.
        let stop = self.signals.received().is_some() || self.time_limit.is_some_and(|limit| now + 2 * step >= limit);
        let checkpoint = self
            .checkpoint_every
            .is_some_and(|every| now - self.last_checkpoint >= every);
        [stop, checkpoint].map(|wish| f64::from(u8::from(wish)))
    }

    /// What the sums of all ranks' wishes mean.
    pub fn agreed(sums: [f64; WISHES]) -> Option<Interrupt> {
        match sums.map(|sum| sum > 0.5) {
            [true, _] => Some(Interrupt::Stop),
            [_, true] => Some(Interrupt::Checkpoint),
            _ => None,
        }
    }

    /// Why the ranks stop, on all ranks the same: the signal of the lowest rank that got one, else the limit.
    ///
    /// # Errors
    /// A failing collective.
    pub fn stop_reason(&self, world: &World) -> Result<StopReason, SpmdError> {
        let signals = world.gather(self.signals.received().map_or(0, i64::from))?;
        let signal = signals.into_iter().find(|&signal| signal != 0);
        Ok(signal.map_or(StopReason::Limit, |signal| StopReason::Signal(signal as i32)))
    }

    /// Between epochs, where no step carries wishes: whether any rank got a signal.
    ///
    /// # Errors
    /// A failing collective.
    pub fn any_signal(&self, world: &World) -> Result<bool, SpmdError> {
        world.any(self.signals.received().is_some())
    }
}

impl fmt::Display for StopReason {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            StopReason::Limit => f.write_str("runtime limit"),
            StopReason::Signal(signal) => f.write_str(&signals::name(*signal)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::RuntimeLimitSettings;

    fn interrupts(max_time_per_run: Option<f64>, checkpoint_every: Option<Duration>) -> Interrupts {
        let world = World::alone(|_| 1);
        let settings = RuntimeLimitSettings {
            max_time_per_run,
            ..RuntimeLimitSettings::default()
        };
        let limits = RuntimeLimits::new(&settings, 0, Instant::now());
        Interrupts::new(&world, Signals::silent(), &limits, checkpoint_every)
    }

    #[test]
    fn one_rank_is_enough_and_stopping_comes_first() {
        assert_eq!(Interrupts::agreed([0.0, 0.0]), None);
        assert_eq!(Interrupts::agreed([1.0, 0.0]), Some(Interrupt::Stop));
        assert_eq!(Interrupts::agreed([3.0, 1.0]), Some(Interrupt::Stop));
        assert_eq!(Interrupts::agreed([0.0, 1.0]), Some(Interrupt::Checkpoint));
    }

    #[test]
    fn without_limits_there_are_no_wishes() {
        for limit in [None, Some(1e6), Some(1e300)] {
            let mut interrupts = interrupts(limit, None);
            assert_eq!((interrupts.wishes(), interrupts.wishes()), ([0.0; 2], [0.0; 2]));
        }
    }

    /// Steps of 1.1 s and a limit of 2 s: the first ends before it, the second would not.
    #[test]
    fn the_last_step_ends_before_the_time_limit() {
        let mut interrupts = interrupts(Some(2.0), None);
        interrupts.begin_steps();
        assert_eq!(interrupts.wishes(), [0.0; 2]);
        std::thread::sleep(Duration::from_millis(1100));
        assert_eq!(interrupts.wishes(), [1.0, 0.0]);
        interrupts.begin_steps();
        assert_eq!(interrupts.wishes(), [0.0; 2], "the pause before is no step");
    }

    #[test]
    fn a_checkpoint_is_wished_some_time_after_the_last() {
        let mut interrupts = interrupts(None, Some(Duration::from_millis(20)));
        assert_eq!(interrupts.wishes(), [0.0; 2]);
        std::thread::sleep(Duration::from_millis(25));
        assert_eq!(interrupts.wishes(), [0.0, 1.0]);
        interrupts.checkpoint_made();
        assert_eq!(interrupts.wishes(), [0.0; 2]);
    }
}
