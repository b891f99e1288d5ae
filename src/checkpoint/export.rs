//! A network for inference: a checkpoint without what only training needs.

use super::atomic_file::replace_file_at;
use super::error::{CheckpointError, Flaw};
use super::fields::expected;
use super::hdf5_model;
use super::object::{Dict, Object};
use std::path::{Path, PathBuf};

/// What Dingo leaves out of its `best_model.pt`.
const TRAINING_STATE: [&str; 4] = [
    "optimizer_kwargs",
    "scheduler_kwargs",
    "optimizer_state_dict",
    "scheduler_state_dict",
];

/// What stays under `spmd`: where the network comes from.
const SPMD_IDENTITY: [&str; 4] = ["version", "seed", "progress", "complete"];

/// In which of Dingo's two formats a network is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModelFormat {
    /// PyTorch's, as training writes it.
    Pt,
    /// That of `dingo_pt_to_hdf5`, for distribution.
    Hdf5,
}

impl ModelFormat {
    /// The format that a file of this name has; `None` where the name says neither.
    pub fn of(path: &Path) -> Option<ModelFormat> {
        match path.extension()?.to_str()? {
            "pt" => Some(ModelFormat::Pt),
            "hdf5" => Some(ModelFormat::Hdf5),
            _ => None,
        }
    }
}

/// Writes the network in the checkpoint `from`, of Dingo's or our own, to `to`, all of it or nothing. Settings stay as they
/// stand in the file.
///
/// # Errors
/// `from` is no checkpoint, or `to` cannot be written.
pub fn export(from: &Path, to: &Path, format: ModelFormat) -> Result<(), CheckpointError> {
    let root = match Object::load(from)? {
        Object::Dict(dict) => dict,
        other => return Err(expected("a dict", &other).in_file(from)),
    };
    for key in ["model_kwargs", "model_state_dict", "epoch", "metadata"] {
        if root.get(key).is_none() {
            return Err(Flaw::at(key, "is missing").in_file(from));
        }
    }
    match format {
        ModelFormat::Pt => without_training_state(root).save(to),
        ModelFormat::Hdf5 => {
            let contents = hdf5_model::Contents::of(&root).map_err(|flaw| flaw.in_file(from))?;
            let name = to.file_name().unwrap_or_default().to_string_lossy();
            let written = replace_file_at(to, |partial| contents.write(partial, &name));
            written.map_err(|reason| CheckpointError::Write {
                path: to.to_path_buf(),
                reason,
            })
        }
    }
}

/// The name with a version, as `dingo_pt_to_hdf5` makes it: `model.hdf5` becomes `model_v3.hdf5`.
pub fn with_model_version(path: &Path, version: u64) -> PathBuf {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let extension = path.extension().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!("{stem}_v{version}.{extension}"))
}

fn without_training_state(mut root: Dict) -> Object {
    for key in TRAINING_STATE {
        root.take(key);
    }
    if let Some(Object::Dict(mut spmd)) = root.take("spmd") {
        let stays = |key: &Object| key.as_str().is_some_and(|name| SPMD_IDENTITY.contains(&name));
        spmd.entries.retain(|(key, _)| stays(key));
        root.set("spmd", spmd);
    }
    Object::Dict(root)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_dingos_tool() {
        let named = |path: &str| with_model_version(Path::new(path), 3);
        assert_eq!(named("here/model.hdf5"), Path::new("here/model_v3.hdf5"));
        assert_eq!(named("a.b.hdf5"), Path::new("a.b_v3.hdf5"));
        assert_eq!(ModelFormat::of(Path::new("a/b.pt")), Some(ModelFormat::Pt));
        assert_eq!(ModelFormat::of(Path::new("a/b.hdf5")), Some(ModelFormat::Hdf5));
        assert_eq!(ModelFormat::of(Path::new("a/b.h5")), None);
    }

    #[test]
    fn only_what_training_needs_is_left_out() {
        let spmd = Object::dict([("seed", 1u64), ("loss_sums", 2), ("version", 3)]);
        let mut root = Dict::default();
        for key in TRAINING_STATE {
            root.set(key, Object::None);
        }
        root.set("iteration", 5u64);
        root.set("context", "kept");
        root.set("spmd", spmd);
        let exported = without_training_state(root);
        let keys = |object: &Object| -> Vec<String> {
            let dict = object.as_dict().unwrap();
            let names = dict.entries.iter().map(|(key, _)| key.as_str().unwrap().to_owned());
            names.collect()
        };
        assert_eq!(keys(&exported), ["iteration", "context", "spmd"]);
        assert_eq!(keys(exported.get("spmd").unwrap()), ["seed", "version"]);
    }
}
