//! An optimizer's state as PyTorch's `Optimizer.state_dict()` arranges it.

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
