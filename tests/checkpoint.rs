//! Dingo's `.pt` files: read and compared with what PyTorch reads, written and read back, and refused when they are bad.

use dingo_spmd::checkpoint::{Checkpoint, CheckpointError, Dict, Object, StateEntry};
use indexmap::IndexMap;
use serde_yaml::Value;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
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

/// The bytes of a tensor's elements, row by row: equal only if the tensors are, NaN and the sign of zero included.
fn bits(tensor: &Tensor) -> (Kind, Vec<i64>, Vec<u8>) {
    let mut bytes = vec![0; tensor.numel() * tensor.kind().elt_size_in_bytes()];
    tensor.copy_data_u8(&mut bytes, tensor.numel());
    (tensor.kind(), tensor.size(), bytes)
}

/// Everything about an object in comparable form.
fn fingerprint(object: &Object) -> String {
    let entries = |entries: &[(Object, Object)]| {
        let pairs = entries
            .iter()
            .map(|(key, value)| format!("{}: {}", fingerprint(key), fingerprint(value)));
        pairs.collect::<Vec<_>>().join(", ")
    };
    match object {
        Object::Tensor(tensor) => format!("tensor {:?}", bits(tensor)),
        Object::Float(value) => format!("float {:016x}", value.to_bits()),
        Object::List(items) => format!(
            "[{}]",
            items.iter().map(|item| fingerprint(item) + ", ").collect::<String>()
        ),
        Object::Tuple(items) => format!(
            "({})",
            items.iter().map(|item| fingerprint(item) + ", ").collect::<String>()
        ),
        Object::Dict(dict) => {
            let attributes = entries(&dict.attributes);
            format!(
                "ordered {} {{{}}} with {{{attributes}}}",
                dict.ordered,
                entries(&dict.entries)
            )
        }
        plain => format!("{plain:?}"),
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
        .args(["--exact", "saves_on_a_full_disk", "--ignored", "--nocapture"])
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

/// A checkpoint of our own making with these entries in its zip.
fn zip_with(path: &Path, entries: &[(&str, &[u8])], method: zip::CompressionMethod) {
    let mut zip = zip::ZipWriter::new(std::fs::File::create(path).unwrap());
    let options = zip::write::SimpleFileOptions::default().compression_method(method);
    for (name, contents) in entries {
        zip.start_file(*name, options).unwrap();
        zip.write_all(contents).unwrap();
    }
    zip.finish().unwrap();
}

/// The error's message without the folder.
fn message(path: &Path) -> String {
    let error = Checkpoint::load(path).err().expect("a bad checkpoint was read");
    assert!(error.is_bad_input());
    error
        .to_string()
        .replace(&format!("{}/", path.parent().unwrap().display()), "")
}

fn message_for_bytes(bytes: &[u8]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bad.pt");
    std::fs::write(&path, bytes).unwrap();
    message(&path)
}

fn message_for_zip(entries: &[(&str, &[u8])]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bad.pt");
    zip_with(&path, entries, zip::CompressionMethod::Stored);
    message(&path)
}

#[test]
fn says_what_is_no_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    let missing = message(&folder.path().join("missing.pt"));
    assert_eq!(
        missing,
        "cannot read the checkpoint missing.pt: No such file or directory (os error 2)"
    );
    assert!(message(&fixture("legacy.pt")).contains("before PyTorch 1.6; convert it in Python"));
    assert!(message(&tests_folder().join("cases/npe/asds.hdf5")).contains("an HDF5 file"));
    assert!(message(folder.path()).contains("Is a directory"));
    for bytes in [&b""[..], b"short", &[0; 10_000]] {
        assert!(message_for_bytes(bytes).starts_with("bad.pt: not a whole PyTorch checkpoint"));
    }
    assert!(message_for_zip(&[("a.txt", b"")]).contains("it has no data.pkl"));
    let big = message_for_zip(&[("a/data.pkl", b"\x80\x02}."), ("a/byteorder", b"big")]);
    assert_eq!(
        big,
        "bad.pt: its byte order is \"big\"; only little-endian checkpoints can be read"
    );
}

#[test]
fn executes_nothing() {
    let os_system = b"\x80\x02cos\nsystem\nX\x0e\x00\x00\x00touch /tmp/bad.\x85R.";
    assert_eq!(
        message_for_zip(&[("a/data.pkl", os_system)]),
        "bad.pt: its pickle, byte 2: it names \"os.system\", which is not plain data; nothing of it was executed"
    );
}

/// `old_dingo.pt` with one change made to it.
fn message_for_changed(change: impl FnOnce(&mut Dict)) -> String {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("changed.pt");
    let Object::Dict(mut dict) = Object::load(fixture("old_dingo.pt")).unwrap() else {
        panic!()
    };
    change(&mut dict);
    Object::from(dict).save(&path).unwrap();
    message(&path)
}

#[test]
fn names_the_key_that_is_missing_or_wrong() {
    for key in ["model_kwargs", "model_state_dict", "epoch", "metadata"] {
        let message = message_for_changed(|dict| drop(dict.take(key)));
        assert_eq!(message, format!("changed.pt: {key}: is missing"));
    }
    assert_eq!(
        message_for_changed(|dict| dict.set("metadata", Object::dict([("dataset_settings", Object::None)]))),
        "changed.pt: metadata.train_settings: is missing"
    );
    assert_eq!(
        message_for_changed(|dict| dict.set("epoch", -3i64)),
        "changed.pt: epoch: is an int (-3), should be a non-negative int"
    );
    assert_eq!(
        message_for_changed(|dict| dict.set("iteration", 1.5)),
        "changed.pt: iteration: is a float (1.5), should be a non-negative int"
    );
    assert_eq!(
        message_for_changed(|dict| dict.set("model_state_dict", Object::dict([("net.weight", "text")]))),
        "changed.pt: model_state_dict.net.weight: is a string, should be a tensor"
    );
    assert_eq!(
        message_for_changed(|dict| dict.set("model_kwargs", Object::dict([("a", Object::list([Tensor::from(1)]))]))),
        "changed.pt: model_kwargs.a.0: is a tensor; only None, bool, int, float, str, list, tuple and dict may stand here"
    );
    let optimizer = Object::dict([
        ("state", Object::list::<Object>([])),
        ("param_groups", Object::list::<Object>([])),
    ]);
    let message = message_for_changed(|dict| {
        dict.set("optimizer_kwargs", Object::dict([("type", "adam")]));
        dict.set("optimizer_state_dict", optimizer);
    });
    assert_eq!(
        message,
        "changed.pt: optimizer_state_dict.state: is a list, should be a dict"
    );
}

#[test]
fn no_truncation_and_no_flipped_byte_does_harm() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("damaged.pt");
    let attempt = |bytes: &[u8]| {
        std::fs::write(&path, bytes).unwrap();
        Checkpoint::load(&path).is_ok()
    };
    let whole = std::fs::read(fixture("old_dingo.pt")).unwrap();
    assert!(attempt(&whole));
    for length in 0..whole.len() {
        assert!(!attempt(&whole[..length]), "cut at {length} of {}", whole.len());
    }
    let npe = std::fs::read(tests_folder().join("cases/npe/model_trained.pt")).unwrap();
    for length in (0..npe.len()).step_by(npe.len() / 97) {
        assert!(!attempt(&npe[..length]));
    }
    let mut generator = Lcg(1);
    for _ in 0..3000 {
        let mut bytes = whole.clone();
        for _ in 0..1 + generator.below(3) {
            let position = generator.below(bytes.len());
            bytes[position] = generator.below(256) as u8;
        }
        attempt(&bytes);
    }
}

/// A linear congruential generator (Knuth's MMIX): the same damage in every run.
struct Lcg(u64);

impl Lcg {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % bound
    }
}

#[test]
fn a_damaged_tensor_is_noticed() {
    let mut bytes = std::fs::read(tests_folder().join("cases/npe/model_trained.pt")).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    assert!(
        message_for_bytes(&bytes).contains("checksum"),
        "{}",
        message_for_bytes(&bytes)
    );
}
