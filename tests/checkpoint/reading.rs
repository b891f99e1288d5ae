//! What is read is what PyTorch reads.

use super::{bits, fingerprint, fixture, tests_folder};
use dingo_spmd::checkpoint::{Checkpoint, Object, StateEntry};
use serde_yaml::Value;
use std::path::Path;
use tch::{Kind, Tensor};

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

#[test]
fn reads_every_kind_of_data() {
    let object = Object::load(fixture("types.pt")).unwrap();
    let plain = object.get("plain").unwrap();
    let ints: Vec<i128> = plain.get("ints").unwrap().as_items().unwrap().iter().map(int).collect();
    let powers = [1 << 31, (1 << 63) - 1, -(1 << 63), (1 << 64) - 1, 1 << 100];
    assert_eq!(ints[..8], [0, 255, 256, 65535, 65536, -1, (1 << 31) - 1, -(1 << 31)]);
    assert_eq!(ints[8..], powers);
    let floats = plain.get("floats").unwrap().as_items().unwrap();
    let floats: Vec<u64> = floats.iter().map(|float| float.as_f64().unwrap().to_bits()).collect();
    let expected = [0.0, -0.0, 1.0, 1e-320, f64::INFINITY, f64::NEG_INFINITY];
    assert_eq!(floats, expected.map(f64::to_bits));
    assert_eq!(
        plain.get("text").unwrap().as_str().unwrap(),
        "Überlichtgeschwindigkeit ∞"
    );
    assert!(matches!(plain.get("bytes").unwrap(), Object::Bytes(bytes) if bytes.iter().copied().eq(0..=255)));
    assert!(matches!(plain.get("none").unwrap(), Object::None));
    assert_eq!(plain.get("true").unwrap().as_bool(), Some(true));
    assert!(matches!(plain.get("size").unwrap(), Object::Tuple(items) if items.len() == 2));
    let lengths = plain
        .get("tuples")
        .unwrap()
        .as_items()
        .unwrap()
        .iter()
        .map(|tuple| tuple.as_items().unwrap().len());
    assert!(lengths.eq(0..5));

    let tensor = |name: &str| {
        object
            .get("tensors")
            .unwrap()
            .get(name)
            .unwrap()
            .as_tensor()
            .unwrap()
            .shallow_clone()
    };
    let base = Tensor::arange(24, (Kind::Float, tch::Device::Cpu)).view([4, 6]);
    assert_eq!(bits(&tensor("base")), bits(&base));
    assert_eq!(bits(&tensor("transposed")), bits(&base.tr()));
    assert_eq!(
        bits(&tensor("slice")),
        bits(&base.slice(0, 1, 3, 1).slice(1, 2, None, 2))
    );
    assert_eq!(
        tensor("slice").data_ptr() as usize,
        tensor("base").data_ptr() as usize + 8 * 4,
        "storage is shared"
    );
    assert_eq!(bits(&tensor("scalar")), bits(&Tensor::from(1.5f32)));
    assert_eq!(tensor("empty").size(), [0, 3]);
    for (name, kind) in [("half", Kind::Half), ("bfloat16", Kind::BFloat16)] {
        assert_eq!(
            bits(&tensor(name)),
            bits(&Tensor::from_slice(&[0.5f32, -2.0]).to_kind(kind))
        );
    }
    assert_eq!(bits(&tensor("double")), bits(&Tensor::from_slice(&[1e300, f64::NAN])));
    assert_eq!(bits(&tensor("int64")), bits(&Tensor::from_slice(&[-(1i64 << 62), 7])));
    assert_eq!(bits(&tensor("int32")), bits(&Tensor::from_slice(&[-5i32, 6])));
    assert_eq!(bits(&tensor("int16")), bits(&Tensor::from_slice(&[-300i16, 300])));
    assert_eq!(bits(&tensor("int8")), bits(&Tensor::from_slice(&[-128i8, 127])));
    assert_eq!(bits(&tensor("uint8")), bits(&Tensor::from_slice(&[0u8, 255])));
    assert_eq!(bits(&tensor("bool")), bits(&Tensor::from_slice(&[true, false, true])));
    assert_eq!(bits(&tensor("parameter")), bits(&Tensor::from_slice(&[1f32, 1.0])));
}

fn int(object: &Object) -> i128 {
    match object {
        Object::Int(value) => *value,
        other => panic!("{other:?}"),
    }
}

#[test]
fn newer_pickle_protocols_give_the_same() {
    let (old, new) = (Object::load(fixture("types.pt")), Object::load(fixture("protocol4.pt")));
    assert_eq!(fingerprint(&old.unwrap()), fingerprint(&new.unwrap()));
}

#[test]
fn reads_old_checkpoints() {
    let old = Checkpoint::load(fixture("old_dingo.pt")).unwrap();
    assert_eq!((old.epoch, old.iteration, old.version), (300, 0, None));
    // Old keys are brought up to date.
    assert_eq!(old.model_kwargs["posterior_model_type"], "normalizing_flow");
    assert_eq!(
        old.model_kwargs["posterior_kwargs"]["base_transform_kwargs"]["norm"],
        "BatchNorm"
    );
    assert_eq!(old.model_kwargs["embedding_kwargs"]["svd"]["size"], 2);
    assert_eq!(old.model_kwargs, old.metadata.train_settings["model"]);
    let standardization = &old.metadata.train_settings["data"]["standardization"];
    assert_eq!(standardization["mean"]["chirp_mass"], 55.5);
    assert_eq!(standardization["std"]["mass_ratio"], 0.25);
    assert_eq!(old.metadata.dataset_settings["num_samples"], 5_000_000);
    assert!(old.training.is_none());
}
