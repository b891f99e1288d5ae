//! An optimizer's state as PyTorch's `Optimizer.state_dict()` arranges it.

use super::error::Flaw;
use super::fields::{expected, Fields};
use super::object::{Dict, Object};
use crate::settings::Value;
use indexmap::IndexMap;
use std::collections::BTreeMap;
use tch::Tensor;

/// `{"state": {index: {name: entry}}, "param_groups": [...]}`. Indices count `network.parameters()`, frozen ones included.
#[derive(Debug, Default)]
pub struct OptimizerState {
    pub state: BTreeMap<usize, IndexMap<String, StateEntry>>,
    pub param_groups: Vec<ParameterGroup>,
}

/// One value of a parameter's state, such as `exp_avg` (a tensor), `step` (a 0-d float32 tensor), or
/// `momentum_buffer: None`.
#[derive(Debug)]
pub enum StateEntry {
    Tensor(Tensor),
    Plain(Value),
}

/// Options in PyTorch's order (`lr`, `betas`, …, and `initial_lr` once a scheduler is attached) and the indices of the
/// parameters they hold for. Tuples of options (`betas`) are sequences here; the writer makes `betas` a tuple again.
#[derive(Debug, Default)]
pub struct ParameterGroup {
    pub options: IndexMap<String, Value>,
    pub params: Vec<usize>,
}

/// The one option that PyTorch holds as a tuple.
const TUPLE_OPTION: &str = "betas";

impl OptimizerState {
    pub(super) fn from_object(object: Object) -> Result<OptimizerState, Flaw> {
        let mut fields = Fields::of(object)?;
        Ok(OptimizerState {
            state: fields.nested("state", states_from_object)?,
            param_groups: fields.nested("param_groups", |groups| from_list(groups, ParameterGroup::from_object))?,
        })
    }

    pub(super) fn to_object(&self) -> Object {
        let states = self.state.iter().map(|(&index, entries)| {
            let entries = entries.iter().map(|(name, entry)| (name.as_str(), entry.to_object()));
            (index, Object::dict(entries))
        });
        Object::dict([
            ("state", Object::dict(states)),
            (
                "param_groups",
                Object::list(self.param_groups.iter().map(ParameterGroup::to_object)),
            ),
        ])
    }
}

fn states_from_object(object: Object) -> Result<BTreeMap<usize, IndexMap<String, StateEntry>>, Flaw> {
    let Object::Dict(dict) = object else {
        return Err(expected("a dict", &object));
    };
    let states = dict.entries.into_iter().map(|(key, entries)| {
        let index = index_from_object(&key)?;
        let entries = Fields::of(entries).and_then(Fields::rest).and_then(|entries| {
            let typed = entries.into_iter().map(|(name, entry)| {
                let entry = StateEntry::from_object(entry).map_err(|flaw| flaw.under(&name))?;
                Ok((name, entry))
            });
            typed.collect()
        });
        Ok((index, entries.map_err(|flaw| flaw.under(&index.to_string()))?))
    });
    states.collect()
}

impl StateEntry {
    fn from_object(object: Object) -> Result<StateEntry, Flaw> {
        match object {
            Object::Tensor(tensor) => Ok(StateEntry::Tensor(tensor)),
            other => Ok(StateEntry::Plain(other.into_value()?)),
        }
    }

    fn to_object(&self) -> Object {
        match self {
            StateEntry::Tensor(tensor) => Object::Tensor(tensor.shallow_clone()),
            StateEntry::Plain(value) => Object::from(value),
        }
    }
}

impl ParameterGroup {
    fn from_object(object: Object) -> Result<ParameterGroup, Flaw> {
        let mut fields = Fields::of(object)?;
        let params = fields.nested("params", |list| from_list(list, |index| index_from_object(&index)))?;
        let options = fields.rest()?.into_iter().map(|(name, option)| {
            let value = option.into_value().map_err(|flaw| flaw.under(&name))?;
            Ok((name, value))
        });
        Ok(ParameterGroup {
            options: options.collect::<Result<_, Flaw>>()?,
            params,
        })
    }

    fn to_object(&self) -> Object {
        let options = self.options.iter().map(|(name, value)| match Object::from(value) {
            Object::List(items) if name == TUPLE_OPTION => (name.as_str(), Object::Tuple(items)),
            option => (name.as_str(), option),
        });
        let mut dict: Dict = options.collect();
        dict.set("params", Object::list(self.params.iter().copied()));
        Object::Dict(dict)
    }
}

fn from_list<T>(object: Object, read: impl Fn(Object) -> Result<T, Flaw>) -> Result<Vec<T>, Flaw> {
    let (Object::List(items) | Object::Tuple(items)) = object else {
        return Err(expected("a list", &object));
    };
    let read_at = |(index, item)| read(item).map_err(|flaw| flaw.under(&format!("{index}")));
    let numbered = items.into_iter().enumerate();
    numbered.map(read_at).collect()
}

fn index_from_object(object: &Object) -> Result<usize, Flaw> {
    let index = object.as_u64().and_then(|index| usize::try_from(index).ok());
    index.ok_or_else(|| expected("the index of a parameter", object))
}
