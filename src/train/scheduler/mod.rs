//! Learning rate schedules, stepped once per epoch, with PyTorch's recursions and PyTorch's state layout.

mod cosine;
mod epochs;
mod plateau;
mod step;

use super::saved_state::SavedState;
use super::{Optimizer, TrainError};
use crate::settings::{SchedulerSettings, Value};
use cosine::CosineAnnealing;
use plateau::ReduceOnPlateau;
use step::StepDecay;

/// Where the state stands in a checkpoint.
const PATH: &str = "scheduler_state_dict";

#[derive(Debug)]
pub struct Scheduler {
    schedule: Schedule,
}

#[derive(Debug)]
enum Schedule {
    Step(StepDecay),
    Cosine(CosineAnnealing),
    ReduceOnPlateau(ReduceOnPlateau),
}

impl Scheduler {
    /// Attaches to a new optimizer. When resuming, load both states afterwards, in any order.
    pub fn new(settings: &SchedulerSettings, optimizer: &mut Optimizer) -> Scheduler {
        let schedule = match *settings {
            SchedulerSettings::Step { step_size, gamma } => {
                Schedule::Step(StepDecay::new(step_size, gamma, optimizer.initial_lr()))
            }
            SchedulerSettings::Cosine { t_max, eta_min } => {
                Schedule::Cosine(CosineAnnealing::new(t_max, eta_min, optimizer.initial_lr()))
            }
            SchedulerSettings::ReduceOnPlateau { .. } => {
                Schedule::ReduceOnPlateau(ReduceOnPlateau::new(settings, optimizer.lr()))
            }
        };
        Scheduler { schedule }
    }

    /// The end of an epoch: sets the optimizer's learning rate for the next one. Only `reduce_on_plateau` looks at
    /// `test_loss`, which must be the same on all ranks.
    pub fn step(&mut self, optimizer: &mut Optimizer, test_loss: f64) {
        let lr = match &mut self.schedule {
            Schedule::Step(schedule) => schedule.step(optimizer.lr()),
            Schedule::Cosine(schedule) => schedule.step(optimizer.lr()),
            Schedule::ReduceOnPlateau(schedule) => schedule.step(optimizer.lr(), test_loss),
        };
        optimizer.set_lr(lr);
    }

    /// The state as PyTorch 2.11's `state_dict()`, keys in its order.
    pub fn state(&self) -> Value {
        match &self.schedule {
            Schedule::Step(schedule) => schedule.state(),
            Schedule::Cosine(schedule) => schedule.state(),
            Schedule::ReduceOnPlateau(schedule) => schedule.state(),
        }
    }

    /// Takes over a state that PyTorch or [`Scheduler::state`] produced; its options win over those of the settings, as
    /// in PyTorch. On an error nothing is changed.
    ///
    /// Errors: a key that is missing, as in the state of another type of scheduler, or of the wrong type.
    pub fn load_state(&mut self, state: &Value) -> Result<(), TrainError> {
        let saved = SavedState::from_value(PATH, state)?;
        self.schedule = match &self.schedule {
            Schedule::Step(_) => Schedule::Step(StepDecay::from_state(&saved)?),
            Schedule::Cosine(_) => Schedule::Cosine(CosineAnnealing::from_state(&saved)?),
            Schedule::ReduceOnPlateau(_) => Schedule::ReduceOnPlateau(ReduceOnPlateau::from_state(&saved)?),
        };
        Ok(())
    }
}
