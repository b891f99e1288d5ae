//! What one optimizer algorithm is to [`super::Optimizer`].

use super::adagrad::Adagrad;
use super::adam::Adam;
use super::rmsprop::RmsProp;
use super::sgd::Sgd;
use crate::settings::{OptimizerSettings, Value};
use crate::torch_ext::{ElementUpdate, FusedAdamOptions};
use crate::train::saved_state::SavedState;
use crate::train::TrainError;
use std::fmt::Debug;
use tch::{TchError, Tensor};

/// An update formula with its options, learning rate excepted.
pub(super) trait UpdateRule: Debug {
    /// Names of the tensors kept for each parameter, each of the parameter's shape, in PyTorch's order.
    fn slots(&self) -> Vec<&'static str>;

    /// Whether PyTorch stores the number of updates (`step`) with each parameter.
    fn stores_step(&self) -> bool {
        true
    }

    /// Whether every parameter has a state before its first update, frozen ones too.
    fn starts_with_state(&self) -> bool {
        false
    }

    /// What a slot holds before the first update.
    fn initial_value(&self) -> f64 {
        0.0
    }

    /// The options of PyTorch's parameter group that follow `lr`, in PyTorch's order.
    fn options(&self) -> Vec<(&'static str, Value)>;

    /// The same rule with the options of a saved parameter group, which win over the settings, as in PyTorch.
    fn with_options(&self, saved: &SavedState) -> Result<Box<dyn UpdateRule>, TrainError>;

    /// What the update with number `updates` (from 1) does to each element, with the slots in their order.
    fn element(&self, lr: f64, updates: u64) -> ElementUpdate;

    /// The options of a rule that a device can apply or not, as it finds the gradients.
    fn fused_adam(&self, _lr: f64) -> Option<FusedAdamOptions> {
        None
    }

    fn new_state(&self, parameter: &Tensor) -> Result<ParameterState, TchError> {
        let slots = self
            .slots()
            .into_iter()
            .map(|_| parameter.f_full_like(self.initial_value()));
        Ok(ParameterState {
            updates: 0,
            slots: slots.collect::<Result<_, _>>()?,
        })
    }
}

/// What an optimizer remembers of one parameter.
#[derive(Debug)]
pub(super) struct ParameterState {
    /// Updates so far; of a rule that does not store it, only known to be zero or not after loading.
    pub updates: u64,
    /// In the order of [`UpdateRule::slots`].
    pub slots: Vec<Tensor>,
}

pub(super) fn from_settings(settings: &OptimizerSettings) -> Box<dyn UpdateRule> {
    match *settings {
        OptimizerSettings::Adam {
            betas,
            eps,
            weight_decay,
            amsgrad,
            ..
        } => Box::new(Adam::new(betas, eps, weight_decay, amsgrad)),
        OptimizerSettings::AdamW {
            betas,
            eps,
            weight_decay,
            amsgrad,
            ..
        } => Box::new(Adam::new(betas, eps, weight_decay, amsgrad).decoupled()),
        OptimizerSettings::Sgd {
            momentum,
            dampening,
            weight_decay,
            nesterov,
            ..
        } => Box::new(Sgd {
            momentum,
            dampening,
            weight_decay,
            nesterov,
        }),
        OptimizerSettings::RmsProp {
            alpha,
            eps,
            weight_decay,
            momentum,
            centered,
            ..
        } => Box::new(RmsProp {
            alpha,
            eps,
            weight_decay,
            momentum,
            centered,
        }),
        OptimizerSettings::Adagrad {
            lr_decay,
            weight_decay,
            initial_accumulator_value,
            eps,
            ..
        } => Box::new(Adagrad {
            lr_decay,
            weight_decay,
            initial_accumulator_value,
            eps,
        }),
    }
}

pub(super) fn learning_rate(settings: &OptimizerSettings) -> f64 {
    match *settings {
        OptimizerSettings::Adam { lr, .. }
        | OptimizerSettings::AdamW { lr, .. }
        | OptimizerSettings::Sgd { lr, .. }
        | OptimizerSettings::RmsProp { lr, .. }
        | OptimizerSettings::Adagrad { lr, .. } => lr,
    }
}
