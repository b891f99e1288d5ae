//! Dingo's `.pt` files: read and compared with what PyTorch reads, written and read back, and refused when they are bad.

mod bad_files;
mod reading;
mod writing;

use dingo_spmd::checkpoint::Object;
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
