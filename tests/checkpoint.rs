//! Dingo's `.pt` files: read and compared with what PyTorch reads, written and read back, and refused when they are bad.

use dingo_spmd::checkpoint::{Checkpoint, CheckpointError, Object, StateEntry};
use indexmap::IndexMap;
use serde_yaml::Value;
use std::path::{Path, PathBuf};
use tch::{Kind, Tensor};

fn tests_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests")
}

fn fixture(name: &str) -> PathBuf {
    tests_folder().join("checkpoints").join(name)
}

/// Every `model_*.pt` of the reference cases, those of the folder that DINGO_CASES names included.
fn case_checkpoints() -> Vec<PathBuf> {
    let mut folders = vec![tests_folder().join("cases")];
    folders.extend(std::env::var_os("DINGO_CASES").map(PathBuf::from));
    let mut paths = Vec::new();
    for case in folders.iter().flat_map(|folder| folder.read_dir().unwrap()) {
        for name in ["model_init.pt", "model_trained.pt"] {
            paths.extend(Some(case.as_ref().unwrap().path().join(name)).filter(|path| path.exists()));
        }
    }
    paths
}

fn type_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Float => "float32",
        Kind::Int64 => "int64",
        other => panic!("{other:?} in a reference case"),
    }
}

/// As `describe` of make.py: type, shape, and a sum weighted by position.
fn assert_described(name: &str, tensor: &Tensor, expected: &Value) {
    let flat = tensor.to_kind(Kind::Double).flatten(0, -1);
    let count = flat.numel() as i64;
    let weights = Tensor::arange_start(1, count + 1, (Kind::Double, tch::Device::Cpu)) / count.max(1) as f64;
    let sum = (flat * weights).sum(Kind::Double).double_value(&[]);
    assert_eq!(expected[0], type_name(tensor.kind()), "{name}");
    let shape: Vec<i64> = serde_yaml::from_value(expected[1].clone()).unwrap();
    assert_eq!(tensor.size(), shape, "{name}");
    let reference = expected[2].as_f64().unwrap();
    assert!(
        (sum - reference).abs() <= 1e-12 * (1.0 + reference.abs()),
        "{name}: {sum} {reference}"
    );
}

fn assert_matches_expectations(path: &Path, expected: &Value) {
    let checkpoint = Checkpoint::load(path).unwrap();
    assert_eq!(expected["epoch"], checkpoint.epoch);
    assert_eq!(expected["iteration"], checkpoint.iteration);
    assert_eq!(expected["version"], checkpoint.version.unwrap());
    assert_eq!(checkpoint.model_kwargs, expected["model_kwargs"]);
    assert_eq!(
        checkpoint.metadata.dataset_settings,
        expected["metadata"]["dataset_settings"]
    );
    assert_eq!(
        checkpoint.metadata.train_settings,
        expected["metadata"]["train_settings"]
    );

    let model = expected["model"].as_mapping().unwrap();
    let names: Vec<&str> = model.keys().map(|name| name.as_str().unwrap()).collect();
    assert_eq!(checkpoint.model_state.keys().collect::<Vec<_>>(), names);
    for (name, tensor) in &checkpoint.model_state {
        assert_described(name, tensor, &model[&**name]);
    }

    let training = checkpoint.training.unwrap();
    assert_eq!(training.optimizer_kwargs, expected["optimizer_kwargs"]);
    assert_eq!(training.scheduler_kwargs, expected["scheduler_kwargs"]);
    assert_eq!(training.scheduler.unwrap(), expected["scheduler"]);
    let optimizer = training.optimizer.unwrap();
    assert_eq!(optimizer.param_groups.len(), 1);
    let group = &optimizer.param_groups[0];
    let params: Vec<usize> = serde_yaml::from_value(expected["param_groups"][0]["params"].clone()).unwrap();
    assert_eq!(group.params, params);
    for (name, option) in &group.options {
        assert_eq!(*option, expected["param_groups"][0][&**name], "{name}");
    }
    let states = expected["optimizer"].as_mapping().unwrap();
    assert_eq!(optimizer.state.len(), states.len());
    for (index, entries) in &optimizer.state {
        for (name, entry) in entries {
            match entry {
                StateEntry::Tensor(tensor) => assert_described(name, tensor, &states[&*index.to_string()][&**name]),
                StateEntry::Plain(value) => panic!("{name} is {value:?}"),
            }
        }
    }
}

#[test]
fn reads_what_pytorch_reads() {
    for (case, file) in [("npe", "model_trained"), ("toy", "model_init")] {
        let path = tests_folder().join("cases").join(case).join(format!("{file}.pt"));
        let text = std::fs::read_to_string(fixture(&format!("{case}_{file}.json"))).unwrap();
        assert_matches_expectations(&path, &serde_yaml::from_str(&text).unwrap());
    }
}
