//! What is written holds every bit of what was read, opens in Dingo, and is there whole or not at all.

use super::{bits, case_checkpoints, fingerprint, fixture, tests_folder};
use dingo_spmd::checkpoint::{Checkpoint, CheckpointError, Dict, Object};
use indexmap::IndexMap;
use std::process::Command;
use tch::{Kind, Tensor};

#[test]
fn round_trip_keeps_every_bit() {
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("copy.pt");
    let mut paths = case_checkpoints();
    paths.push(fixture("types.pt"));
    assert!(paths.len() > 4);
    for path in paths {
        let object = Object::load(&path).unwrap();
        object.save(&copy).unwrap();
        assert_eq!(
            fingerprint(&Object::load(&copy).unwrap()),
            fingerprint(&object),
            "{}",
            path.display()
        );
    }
}

/// The typed form loses nothing either, and adds only what is ours: `spmd`.
#[test]
fn typed_round_trip_keeps_every_bit() {
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("copy.pt");
    for path in case_checkpoints() {
        Checkpoint::load(&path).unwrap().save(&copy).unwrap();
        let Object::Dict(mut before) = Object::load(&path).unwrap() else {
            panic!()
        };
        let Object::Dict(mut after) = Object::load(&copy).unwrap() else {
            panic!()
        };
        let spmd = after.take("spmd").unwrap();
        assert_eq!(spmd.get("version").unwrap().as_str(), Some(env!("CARGO_PKG_VERSION")));
        let metadata = |dict: &Dict| {
            let state = dict.get("model_state_dict").unwrap().as_dict().unwrap();
            assert!(state.ordered);
            let (name, versions) = &state.attributes[0];
            assert_eq!(name.as_str(), Some("_metadata"));
            let versions = versions.as_dict().unwrap();
            assert!(versions.ordered);
            let pairs = versions.entries.iter().map(|(module, entry)| {
                (
                    module.as_str().unwrap().to_string(),
                    entry.get("version").unwrap().as_i64().unwrap(),
                )
            });
            pairs.collect::<IndexMap<String, i64>>()
        };
        // PyTorch lists modules without parameters (activations, dropout) too; nothing is lost with them.
        let (listed, derived) = (metadata(&before), metadata(&after));
        for (module, version) in &derived {
            assert_eq!(listed.get(module), Some(version), "{module}");
        }
        assert!(listed
            .iter()
            .all(|(module, &version)| version == 1 || derived.contains_key(module)));

        let clear = |dict: &mut Dict| {
            let Some(Object::Dict(mut state)) = dict.take("model_state_dict") else {
                panic!()
            };
            state.attributes.clear();
            dict.set("model_state_dict", state);
        };
        clear(&mut before);
        clear(&mut after);
        assert_eq!(
            fingerprint(&after.into()),
            fingerprint(&before.into()),
            "{}",
            path.display()
        );
    }
}

#[test]
fn a_shared_storage_is_written_once() {
    let folder = tempfile::tempdir().unwrap();
    let tensor = Tensor::arange(100_000, (Kind::Float, tch::Device::Cpu));
    let path = folder.path().join("shared.pt");
    Object::dict([
        ("a", tensor.shallow_clone()),
        ("b", tensor.shallow_clone()),
        ("column", tensor.view([10, -1]).tr()),
    ])
    .save(&path)
    .unwrap();
    let size = path.metadata().unwrap().len();
    assert!((800_000..804_000).contains(&size), "{size}");
    let object = Object::load(&path).unwrap();
    for name in ["a", "b"] {
        assert_eq!(bits(object.get(name).unwrap().as_tensor().unwrap()), bits(&tensor));
    }
    assert_eq!(
        bits(object.get("column").unwrap().as_tensor().unwrap()),
        bits(&tensor.view([10, -1]).tr())
    );
}

/// Needs a Python with dingo-gw, named by DINGO_PYTHON.
#[test]
fn dingo_opens_what_we_write() {
    let Some(python) = std::env::var_os("DINGO_PYTHON") else {
        eprintln!("SKIPPED: DINGO_PYTHON does not name a python with dingo-gw; Dingo did not open our checkpoints");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    for path in case_checkpoints() {
        let copy = folder.path().join("model_latest.pt");
        Checkpoint::load(&path).unwrap().save(&copy).unwrap();
        let status = Command::new(&python)
            .arg(fixture("compare.py"))
            .args([&path, &copy])
            .status()
            .unwrap();
        assert!(status.success(), "{}", path.display());
    }
}

const FULL_DISK_PATH: &str = "DINGO_TEST_FULL_DISK_PATH";

/// The other half of the next test, run in a process that may not write files of more than a few kB.
#[test]
#[ignore = "run by a_full_disk_leaves_the_previous_checkpoint"]
fn saves_on_a_full_disk() {
    let Some(path) = std::env::var_os(FULL_DISK_PATH) else {
        return;
    };
    let error = Checkpoint::load(&path).unwrap().save(&path).unwrap_err();
    assert!(!error.is_bad_input());
    assert!(matches!(error, CheckpointError::Write { .. }));
    println!("{error}");
}

/// A limit on file sizes stands for the full disk: it fails the same write, and needs no root.
#[test]
fn a_full_disk_leaves_the_previous_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model_latest.pt");
    std::fs::copy(tests_folder().join("cases/npe/model_trained.pt"), &path).unwrap();
    let before = std::fs::read(&path).unwrap();
    let child = Command::new("sh")
        .args(["-c", "trap '' XFSZ; ulimit -f 1000; exec \"$0\" \"$@\""])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "writing::saves_on_a_full_disk", "--ignored", "--nocapture"])
        .env(FULL_DISK_PATH, &path)
        .output()
        .unwrap();
    let output = String::from_utf8_lossy(&child.stdout).into_owned();
    assert!(
        child.status.success(),
        "{output}{}",
        String::from_utf8_lossy(&child.stderr)
    );
    assert!(
        output.contains("cannot write the checkpoint") && output.contains("model_latest.pt"),
        "{output}"
    );
    assert!(output.contains("File too large"), "{output}");
    assert_eq!(
        String::from_utf8_lossy(&child.stderr),
        "",
        "the zip is not complained about"
    );
    assert_eq!(std::fs::read(&path).unwrap(), before);
    assert_eq!(
        std::fs::read_dir(folder.path()).unwrap().count(),
        1,
        "the partial file is gone"
    );
}
