//! The optimizers Dingo offers, with PyTorch's update formulas and PyTorch's state layout.

mod adagrad;
mod adam;
mod late;
mod rmsprop;
mod rule;
mod sgd;
mod state;

use super::TrainError;
use crate::settings::OptimizerSettings;
use crate::torch_ext::{clear, update_in_place, Update};
use rule::{ParameterState, UpdateRule};
use tch::Tensor;

/// One parameter group over all parameters of the network.
///
/// The single place that changes parameters, all of them in one pass over memory.
#[derive(Debug)]
pub struct Optimizer {
    /// In the order of `network.parameters()`; the position is PyTorch's index of a parameter.
    parameters: Vec<Tensor>,
    /// By parameter; `None` until its first update.
    states: Vec<Option<ParameterState>>,
    rule: Box<dyn UpdateRule>,
    lr: f64,
    /// Set once a scheduler that computes from the initial rate is attached.
    initial_lr: Option<f64>,
    /// The counts of updates on the device, by parameter, once steps are decided there.
    device_updates: Vec<Option<Tensor>>,
}

impl Optimizer {
    /// `parameters`: all of `network.parameters()` in order, frozen ones included, as handles that share their storage.
    pub fn new(settings: &OptimizerSettings, parameters: Vec<Tensor>) -> Result<Optimizer, TrainError> {
        let rule = rule::from_settings(settings);
        let states = parameters
            .iter()
            .map(|parameter| rule.starts_with_state().then(|| rule.new_state(parameter)).transpose())
            .collect::<Result<_, _>>()?;
        Ok(Optimizer {
            parameters,
            states,
            rule,
            lr: rule::learning_rate(settings),
            initial_lr: None,
            device_updates: Vec::new(),
        })
    }

    /// Updates every parameter that requires a gradient and has one. A gradient left over on a frozen parameter is
    /// ignored.
    ///
    /// # Errors
    /// A parameter or gradient that is not a contiguous Float or Double tensor in host memory. Nothing is changed then.
    pub fn step(&mut self) -> Result<(), TrainError> {
        self.step_unscaled(1.0)
    }

    /// As [`Optimizer::step`], with the gradients times `inverse_scale`; they themselves stay as they are.
    pub fn step_unscaled(&mut self, inverse_scale: f64) -> Result<(), TrainError> {
        let gradients = self.gradients()?;
        let parameters = self.parameters.iter().zip(&self.states).zip(&gradients);
        let updates = parameters.filter_map(|((parameter, state), gradient)| {
            let state = state.as_ref()?;
            Some(Update {
                parameter,
                gradient: gradient.as_ref()?,
                slots: &state.slots,
                element: self.rule.element(self.lr, state.updates + 1),
            })
        });
        update_in_place(&updates.collect::<Vec<_>>(), inverse_scale)?;
        self.count_update(&gradients);
        Ok(())
    }

    /// The gradient of each parameter that is to be updated, which has a state from here on.
    fn gradients(&mut self) -> Result<Vec<Option<Tensor>>, TrainError> {
        let mut gradients = Vec::with_capacity(self.parameters.len());
        for (parameter, state) in self.parameters.iter().zip(&mut self.states) {
            let gradient = parameter.requires_grad().then(|| parameter.f_grad()).transpose()?;
            let gradient = gradient.filter(Tensor::defined);
            if gradient.is_some() && state.is_none() {
                *state = Some(self.rule.new_state(parameter)?);
            }
            gradients.push(gradient);
        }
        Ok(gradients)
    }

    /// Parameters with a gradient were updated.
    fn count_update(&mut self, gradients: &[Option<Tensor>]) {
        let updated = self.states.iter_mut().zip(gradients);
        for (state, _) in updated.filter(|(_, gradient)| gradient.is_some()) {
            state.iter_mut().for_each(|state| state.updates += 1);
        }
    }

    /// Fills every gradient with zeros in place, so that gradients which are views into flat buckets stay views.
    pub fn zero_grad(&mut self) -> Result<(), TrainError> {
        let gradients = self
            .parameters
            .iter()
            .map(Tensor::f_grad)
            .collect::<Result<Vec<_>, _>>()?;
        let mut defined: Vec<Tensor> = gradients.into_iter().filter(Tensor::defined).collect();
        Ok(clear(&mut defined)?)
    }

    pub fn lr(&self) -> f64 {
        self.lr
    }

    pub fn set_lr(&mut self, lr: f64) {
        self.lr = lr;
    }

    /// What the learning rate was when the first scheduler was attached, which is now if none was.
    pub(super) fn initial_lr(&mut self) -> f64 {
        *self.initial_lr.get_or_insert(self.lr)
    }
}
