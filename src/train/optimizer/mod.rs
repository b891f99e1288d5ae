//! The optimizers Dingo offers, with PyTorch's update formulas and PyTorch's state layout.

mod adagrad;
mod adam;
mod rmsprop;
mod rule;
mod sgd;
mod state;

use super::TrainError;
use crate::settings::OptimizerSettings;
use rule::{ParameterState, UpdateRule};
use tch::Tensor;

/// One parameter group over all parameters of the network.
///
/// The single place that changes parameters: `step` may become one fused update without anyone above noticing.
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
        })
    }

    /// Updates every parameter that requires a gradient and has one. A gradient left over on a frozen parameter is
    /// ignored.
    pub fn step(&mut self) -> Result<(), TrainError> {
        let (rule, lr) = (&self.rule, self.lr);
        let parameters = self.parameters.iter_mut().zip(&mut self.states);
        tch::no_grad(|| {
            for (parameter, state) in parameters.filter(|(parameter, _)| parameter.requires_grad()) {
                let gradient = parameter.f_grad()?;
                if !gradient.defined() {
                    continue;
                }
                let state = match state {
                    Some(state) => state,
                    None => state.insert(rule.new_state(parameter)?),
                };
                state.updates += 1;
                rule.update(lr, parameter, &gradient, state)?;
            }
            Ok(())
        })
    }

    /// Fills every gradient with zeros in place, so that gradients which are views into flat buckets stay views.
    pub fn zero_grad(&mut self) -> Result<(), TrainError> {
        for parameter in &self.parameters {
            let mut gradient = parameter.f_grad()?;
            if gradient.defined() {
                let _ = tch::no_grad(|| gradient.f_zero_())?;
            }
        }
        Ok(())
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
