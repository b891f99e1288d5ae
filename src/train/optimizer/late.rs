//! Steps that the device makes or not, as it finds the gradients; the host hears of it later.

use super::Optimizer;
use crate::torch_ext::{fused_adam, FusedAdamTensors};
use crate::train::TrainError;
use tch::Tensor;

impl Optimizer {
    /// Whether there is such a step.
    pub fn can_step_late(&self) -> bool {
        self.rule.fused_adam(self.lr).is_some()
    }

    /// As [`Optimizer::step`], unless `found` (a float on the device, `[1]`) is 1. [`Optimizer::settle`] is to follow, when the
    /// host knows.
    ///
    /// # Errors
    /// An optimizer that cannot, or what libtorch says.
    pub fn step_late(&mut self, found: &Tensor) -> Result<(), TrainError> {
        let Some(options) = self.rule.fused_adam(self.lr) else {
            let message = "this optimizer's steps cannot be decided on the device";
            return Err(TrainError::state("optimizer", message));
        };
        let gradients = self.gradients()?;
        self.device_updates.resize_with(self.parameters.len(), || None);
        let mut tensors = Vec::with_capacity(gradients.len());
        let of_parameters = self.parameters.iter().zip(&self.states).zip(&mut self.device_updates);
        for (((parameter, state), steps), gradient) in of_parameters.zip(&gradients) {
            let (Some(state), Some(gradient)) = (state, gradient) else {
                continue;
            };
            if steps.is_none() {
                *steps = Some(Tensor::f_full(
                    [] as [i64; 0],
                    state.updates as f64,
                    (tch::Kind::Float, found.device()),
                )?);
            }
            if let Some(steps) = steps {
                tensors.push(FusedAdamTensors {
                    parameter,
                    gradient,
                    slots: &state.slots,
                    steps,
                });
            }
        }
        Ok(fused_adam(&tensors, options, found)?)
    }

    /// Whether the oldest of the late steps that were not settled yet was made: the host's count of updates follows.
    ///
    /// # Errors
    /// What libtorch says.
    pub fn settle(&mut self, made: bool) -> Result<(), TrainError> {
        if made {
            let gradients = self.gradients()?;
            self.count_update(&gradients);
        }
        Ok(())
    }
}
