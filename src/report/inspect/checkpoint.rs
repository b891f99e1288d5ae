//! A page about a checkpoint.

use super::super::text::{count, Page};
use crate::checkpoint::{Dict, Object};
use crate::settings::Value;
use indexmap::IndexMap;
use std::path::Path;
use tch::Tensor;

/// Shown by sections of their own.
const SHOWN: [&str; 7] = [
    "model_kwargs",
    "model_state_dict",
    "epoch",
    "iteration",
    "version",
    "metadata",
    "spmd",
];

/// Whatever is in the file is shown as it stands there: settings are not brought up to date.
pub(super) fn page(path: &Path, root: &Object, tensors: bool) -> String {
    let mut page = Page::new(&path.display().to_string());
    let text = |key: &str| root.get(key).map_or("not recorded".into(), plain);
    let spmd = root.get("spmd");
    let ours = spmd.and_then(|spmd| spmd.get("version"));
    page.fields([
        ("Version", text("version")),
        ("dingo-spmd", ours.map_or("not its file".into(), plain)),
        ("Model epoch", text("epoch")),
        ("Optimizer steps", text("iteration")),
    ]);
    if let Some(Object::Dict(state)) = root.get("model_state_dict") {
        network(&mut page, state, tensors);
    }
    training_state(&mut page, root);
    if let Some(spmd) = spmd {
        page.section("Under spmd");
        page.yaml(&tree(spmd));
    }
    if let Some(dict) = root.as_dict() {
        let others = dict
            .entries
            .iter()
            .filter_map(|(key, value)| Some((key.as_str()?, value)));
        let others = others.filter(|(key, _)| !SHOWN.contains(key) && !is_training_state(key));
        for (key, value) in others {
            page.section(key);
            page.yaml(&tree(value));
        }
    }
    for (title, key) in [("Model kwargs", "model_kwargs"), ("Model metadata", "metadata")] {
        if let Some(settings) = root.get(key) {
            page.section(title);
            page.yaml(&tree(settings));
        }
    }
    page.into_text()
}

/// Counts by part: the embedding network and what follows it; or every tensor.
fn network(page: &mut Page, state: &Dict, tensors: bool) {
    page.section("Network");
    let named = || {
        let entries = state.entries.iter();
        entries.filter_map(|(name, tensor)| Some((name.as_str()?, tensor.as_tensor()?)))
    };
    let mut parts: IndexMap<&str, (usize, usize)> = IndexMap::new();
    for (name, tensor) in named() {
        let part = name.split('.').next().unwrap_or(name);
        let (count, numbers) = parts.entry(part).or_default();
        *count += 1;
        *numbers += tensor.numel();
    }
    let total = parts
        .values()
        .fold((0, 0), |sum, part| (sum.0 + part.0, sum.1 + part.1));
    let rows = parts.into_iter().chain([("together", total)]);
    page.table(rows.map(|(part, (tensors, numbers))| {
        [
            part.to_owned(),
            format!("{tensors} tensors"),
            format!("{} numbers", count(numbers as u64)),
        ]
    }));
    if tensors {
        page.line("");
        page.table(named().map(|(name, tensor)| [name.to_owned(), shape(tensor), kind(tensor)]));
    }
}

fn is_training_state(key: &str) -> bool {
    let parts = ["kwargs", "state_dict"];
    ["optimizer", "scheduler"]
        .iter()
        .any(|what| parts.iter().any(|part| key == format!("{what}_{part}")))
}

/// Optimizer and scheduler: settings and state, the tensors of each parameter by the first one's.
fn training_state(page: &mut Page, root: &Object) {
    page.section("Training state");
    let Some(optimizer) = root.get("optimizer_kwargs") else {
        page.line("none: for inference only");
        return;
    };
    page.line("optimizer:");
    page.yaml(&tree(optimizer));
    if let Some(state) = root.get("optimizer_state_dict") {
        let entries = state
            .get("state")
            .and_then(Object::as_dict)
            .map_or(0, |dict| dict.entries.len());
        page.line(&format!("state of {entries} parameters"));
        let groups = state.get("param_groups").and_then(Object::as_items).unwrap_or_default();
        let rates = groups.iter().filter_map(|group| group.get("lr"));
        rates.for_each(|lr| page.line(&format!("learning rate now: {}", plain(lr))));
    }
    for key in ["scheduler_kwargs", "scheduler_state_dict"] {
        if let Some(scheduler) = root.get(key) {
            page.line(&format!("\n{}:", key.replace('_', " ")));
            page.yaml(&tree(scheduler));
        }
    }
}

/// As a settings tree, tensors by their shapes.
fn tree(object: &Object) -> Value {
    match object {
        Object::Tensor(tensor) => Value::from(format!("tensor {} {}", shape(tensor), kind(tensor))),
        Object::Bytes(bytes) => Value::from(format!("{} bytes", bytes.len())),
        Object::List(items) | Object::Tuple(items) => Value::Sequence(items.iter().map(tree).collect()),
        Object::Dict(dict) => {
            let entries = dict.entries.iter().map(|(key, value)| (tree(key), tree(value)));
            Value::Mapping(entries.collect())
        }
        other => other.to_value().unwrap_or_default(),
    }
}

fn plain(object: &Object) -> String {
    match object {
        Object::String(text) => text.clone(),
        other => crate::settings::yaml::write(&tree(other)).trim_end().to_owned(),
    }
}

fn shape(tensor: &Tensor) -> String {
    format!("{:?}", tensor.size())
}

/// PyTorch's word for the element type.
fn kind(tensor: &Tensor) -> String {
    use tch::Kind::*;
    match tensor.kind() {
        Float => "float32".into(),
        Double => "float64".into(),
        Half => "float16".into(),
        BFloat16 => "bfloat16".into(),
        Int64 => "int64".into(),
        Bool => "bool".into(),
        other => format!("{other:?}").to_lowercase(),
    }
}
