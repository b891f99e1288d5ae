//! A network's parameters and buffers by name, as PyTorch's `Module.state_dict()` arranges them.

use super::error::Flaw;
use super::fields::{expected, Fields};
use super::object::{Dict, Object};
use indexmap::{IndexMap, IndexSet};
use tch::Tensor;

/// `version` that PyTorch's modules carry in a state dict's `_metadata`.
const MODULE_VERSION: i64 = 1;
/// Since this version BatchNorm has the buffer `num_batches_tracked`; PyTorch adds it when it reads an older one.
const BATCH_NORM_VERSION: i64 = 2;
const BATCH_COUNTER: &str = "num_batches_tracked";

pub(super) fn from_object(object: Object) -> Result<IndexMap<String, Tensor>, Flaw> {
    let entries = Fields::of(object)?
        .rest()?
        .into_iter()
        .map(|(name, entry)| match entry {
            Object::Tensor(tensor) => Ok((name, tensor)),
            other => Err(expected("a tensor", &other).under(&name)),
        });
    entries.collect()
}

pub(super) fn to_object(state: &IndexMap<String, Tensor>) -> Object {
    Object::Dict(Dict {
        ordered: true,
        attributes: vec![("_metadata".into(), module_versions(state).into())],
        ..state
            .iter()
            .map(|(name, tensor)| (name.as_str(), tensor.shallow_clone()))
            .collect()
    })
}

/// A version for each module that has parameters or buffers, or contains such; PyTorch assumes none for the others.
fn module_versions(state: &IndexMap<String, Tensor>) -> Dict {
    let mut modules = IndexSet::from([""]);
    for name in state.keys() {
        modules.extend(name.match_indices('.').map(|(end, _)| &name[..end]));
    }
    let versions = modules.into_iter().map(|module| {
        let version = match state.contains_key(&format!("{module}.{BATCH_COUNTER}")) {
            true => BATCH_NORM_VERSION,
            false => MODULE_VERSION,
        };
        (module, Object::dict([("version", version)]))
    });
    Dict {
        ordered: true,
        ..versions.collect()
    }
}
