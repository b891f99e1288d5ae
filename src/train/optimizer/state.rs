//! The optimizer's state in the layout of PyTorch 2.11's `Optimizer.state_dict()`, written and read.

use super::rule::{ParameterState, UpdateRule};
use super::Optimizer;
use crate::checkpoint::{OptimizerState, ParameterGroup, StateEntry};
use crate::train::saved_state::SavedState;
use crate::train::TrainError;
use indexmap::IndexMap;
use std::collections::BTreeMap;
use tch::{Device, Kind, Tensor};

/// Where the state stands in a checkpoint.
const PATH: &str = "optimizer_state_dict";

impl Optimizer {
    /// The state as PyTorch arranges it. The tensors share storage with the optimizer's own: write them out, or copy
    /// them, before the next step.
    pub fn state(&self) -> OptimizerState {
        let mut options = IndexMap::from([("lr".to_owned(), self.lr.into())]);
        options.extend(
            self.rule
                .options()
                .into_iter()
                .map(|(key, value)| (key.to_owned(), value)),
        );
        if let Some(initial_lr) = self.initial_lr {
            options.insert("initial_lr".to_owned(), initial_lr.into());
        }

        let names = self.rule.slots();
        let step = |state: &ParameterState| Tensor::from(state.updates as f32);
        let entries = |state: &ParameterState| -> IndexMap<String, StateEntry> {
            let step = self.rule.stores_step().then(|| ("step", step(state)));
            let slots = names.iter().copied().zip(state.slots.iter().map(Tensor::shallow_clone));
            step.into_iter()
                .chain(slots)
                .map(|(name, tensor)| (name.to_owned(), StateEntry::Tensor(tensor)))
                .collect()
        };
        let states = self.states.iter().enumerate();
        OptimizerState {
            state: states
                .filter_map(|(index, state)| Some((index, entries(state.as_ref()?))))
                .filter(|(_, entries)| !entries.is_empty())
                .collect(),
            param_groups: vec![ParameterGroup {
                options,
                params: (0..self.parameters.len()).collect(),
            }],
        }
    }

    /// Takes over a state that PyTorch or [`Optimizer::state`] produced, copying its tensors. Its options, learning rate
    /// included, win over those the optimizer was made with, as in PyTorch. On an error nothing is changed.
    ///
    /// Errors: another number of groups or parameters, an option or tensor that is missing (unless the parameter has not
    /// been updated yet), a tensor of another shape.
    pub fn load_state(&mut self, saved: &OptimizerState) -> Result<(), TrainError> {
        let [group] = saved.param_groups.as_slice() else {
            let message = format!("has {} groups, one is needed", saved.param_groups.len());
            return Err(TrainError::state(format!("{PATH}.param_groups"), message));
        };
        let path = format!("{PATH}.param_groups.0");
        if group.params.len() != self.parameters.len() {
            let (found, needed) = (group.params.len(), self.parameters.len());
            let message = format!("lists {found} parameters, the network has {needed}");
            return Err(TrainError::state(format!("{path}.params"), message));
        }
        let options = SavedState::from_options(&path, &group.options);
        if options.bool_or("maximize", false)? {
            return Err(TrainError::state(format!("{path}.maximize"), "only false is supported"));
        }
        let rule = self.rule.with_options(&options)?;
        let lr = options.float("lr")?;
        let initial_lr = options.optional_float("initial_lr")?;

        // Identifiers in the file are labels; the position in `params` says which parameter is meant.
        let position: BTreeMap<usize, usize> = group.params.iter().enumerate().map(|(at, &id)| (id, at)).collect();
        let mut states: Vec<Option<ParameterState>> = self.parameters.iter().map(|_| None).collect();
        for (id, entries) in &saved.state {
            let path = format!("{PATH}.state.{id}");
            let Some(&index) = position.get(id) else {
                return Err(TrainError::state(
                    path,
                    "is the state of a parameter that param_groups does not list",
                ));
            };
            states[index] = load_parameter(rule.as_ref(), &path, entries, &self.parameters[index])?;
        }
        if let Some(missing) = states
            .iter()
            .position(|state| rule.starts_with_state() && state.is_none())
        {
            return Err(TrainError::state(format!("{PATH}.state.{missing}"), "is missing"));
        }

        self.rule = rule;
        self.lr = lr;
        self.initial_lr = initial_lr;
        self.states = states;
        self.device_updates.clear();
        Ok(())
    }
}

/// One parameter's state; `None` when it says that there was no update yet (SGD's `momentum_buffer: None`).
fn load_parameter(
    rule: &dyn UpdateRule,
    path: &str,
    entries: &IndexMap<String, StateEntry>,
    parameter: &Tensor,
) -> Result<Option<ParameterState>, TrainError> {
    let mut slots = Vec::new();
    for name in rule.slots() {
        let key = format!("{path}.{name}");
        let tensor = match entries.get(name) {
            Some(StateEntry::Tensor(tensor)) => tensor,
            Some(StateEntry::Plain(value)) if value.is_null() && !rule.stores_step() => return Ok(None),
            Some(StateEntry::Plain(_)) => return Err(TrainError::state(key, "is not a tensor")),
            None => return Err(TrainError::state(key, "is missing")),
        };
        if tensor.size() != parameter.size() {
            let message = format!(
                "has shape {:?}, the parameter has {:?}",
                tensor.size(),
                parameter.size()
            );
            return Err(TrainError::state(key, message));
        }
        let mut slot = parameter.f_zeros_like()?;
        tch::no_grad(|| slot.f_copy_(tensor))?;
        slots.push(slot);
    }
    let updates = if rule.stores_step() {
        load_step(&format!("{path}.step"), entries.get("step"))?
    } else {
        // Not stored; a state that exists has seen at least one update.
        1
    };
    Ok(Some(ParameterState { updates, slots }))
}

/// The count of updates: a tensor with one element, or a plain number in files of old PyTorch.
fn load_step(key: &str, entry: Option<&StateEntry>) -> Result<u64, TrainError> {
    let step = match entry {
        None => return Err(TrainError::state(key, "is missing")),
        Some(StateEntry::Plain(value)) => value.as_f64(),
        Some(StateEntry::Tensor(tensor)) if tensor.numel() == 1 => {
            let on_host = tensor.f_to(Device::Cpu)?.f_to_kind(Kind::Double)?;
            Some(on_host.f_reshape([1])?.f_double_value(&[0])?)
        }
        Some(StateEntry::Tensor(_)) => None,
    };
    match step {
        Some(step) if step >= 0.0 && step.fract() == 0.0 => Ok(step as u64),
        _ => Err(TrainError::state(key, "is not a count")),
    }
}
