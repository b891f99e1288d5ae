//! Files that are no checkpoint, damaged, hostile or incomplete are refused with a message that says so.

use super::{fixture, tests_folder};
use dingo_spmd::checkpoint::{Checkpoint, Dict, Object};
use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;
use tch::{Kind, Tensor};

/// A zip of these entries, its checksums right.
fn write_zip(path: &Path, entries: &[(&str, &[u8])]) {
    let mut zip = zip::ZipWriter::new(File::create(path).unwrap());
    let options = zip::write::SimpleFileOptions::default().compression_method(zip::CompressionMethod::Stored);
    for (name, contents) in entries {
        zip.start_file(*name, options).unwrap();
        zip.write_all(contents).unwrap();
    }
    zip.finish().unwrap();
}

/// The error's message without the folder.
fn message(path: &Path) -> String {
    let error = Checkpoint::load(path).expect_err("a bad checkpoint was read");
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
    write_zip(&path, entries);
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

/// A checkpoint of one tensor with the contents of its storage replaced, or taken out.
fn message_for_storage(tensor: Tensor, storage: Option<&[u8]>) -> String {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.pt");
    Object::dict([("t", tensor)]).save(&path).unwrap();
    let mut pickle = Vec::new();
    let mut zip = zip::ZipArchive::new(File::open(&path).unwrap()).unwrap();
    zip.by_name("a/data.pkl").unwrap().read_to_end(&mut pickle).unwrap();
    let mut entries = vec![("a/data.pkl", &pickle[..])];
    entries.extend(storage.map(|bytes| ("a/data/0", bytes)));
    message_for_zip(&entries)
}

#[test]
fn storages_are_checked_against_the_file() {
    let floats = || Tensor::zeros([3], (Kind::Float, tch::Device::Cpu));
    let missing = message_for_storage(floats(), None);
    assert!(missing.ends_with("entry a/data/0: missing"), "{missing}");
    for bytes in [&[0; 11][..], &[0; 13]] {
        let message = message_for_storage(floats(), Some(bytes));
        let reason = format!(
            "storage \"0\" should hold 3 elements of Float but has {} bytes",
            bytes.len()
        );
        assert!(message.ends_with(&reason), "{message}");
    }
    let bools = message_for_storage(Tensor::from_slice(&[true, false]), Some(&[1, 2]));
    assert!(bools.ends_with("has bytes other than 0 and 1"), "{bools}");
}

#[test]
fn compressed_entries_are_refused() {
    let mut bytes = std::fs::read(fixture("old_dingo.pt")).unwrap();
    // In the local and the central header of each entry, the method at its offset: 8 is deflate.
    for (signature, offset) in [(b"PK\x03\x04", 8), (b"PK\x01\x02", 10)] {
        for position in 0..bytes.len() - offset {
            if bytes[position..].starts_with(signature) {
                bytes[position + offset] = 8;
            }
        }
    }
    let message = message_for_bytes(&bytes);
    assert!(message.starts_with("bad.pt: entry old_dingo/"), "{message}");
    assert!(message.to_lowercase().contains("compress"), "{message}");
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
    for length in (0..whole.len()).step_by(7) {
        assert!(!attempt(&whole[..length]), "cut at {length} of {}", whole.len());
    }
    let npe = std::fs::read(tests_folder().join("cases/npe/model_trained.pt")).unwrap();
    for length in (0..npe.len()).step_by(npe.len() / 97) {
        assert!(!attempt(&npe[..length]));
    }
    let mut generator = Lcg(1);
    for _ in 0..1000 {
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
