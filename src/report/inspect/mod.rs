//! `inspect`: what is in a file, like `dingo_ls`.

mod checkpoint;
mod hdf5;

use crate::checkpoint::Object;
use crate::data::FileSummary;
use anyhow::Result;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Why nothing can be said of a file.
#[derive(Debug, thiserror::Error)]
pub enum InspectError {
    #[error("{}: cannot be read: {reason}", path.display())]
    Read { path: PathBuf, reason: io::Error },
    #[error("{}: is neither a checkpoint (.pt) nor an HDF5 file", path.display())]
    Kind { path: PathBuf },
}

/// How files of each kind begin: checkpoints are zip archives.
const ZIP: &[u8] = b"PK";
const HDF5: &[u8] = b"\x89HDF";

/// A page about the file, whose kind is told by how it begins. `tensors`: name every tensor of a network.
///
/// # Errors
/// The file cannot be read, is of neither kind, or is damaged.
pub fn inspect(path: &Path, tensors: bool) -> Result<String> {
    let begin = first_bytes(path).map_err(|reason| InspectError::Read {
        path: path.to_owned(),
        reason,
    })?;
    if begin.starts_with(HDF5) {
        return Ok(hdf5::page(path, &FileSummary::read(path)?, tensors));
    }
    if begin.starts_with(ZIP) || path.extension().is_some_and(|extension| extension == "pt") {
        return Ok(checkpoint::page(path, &Object::load(path)?, tensors));
    }
    Err(InspectError::Kind { path: path.to_owned() }.into())
}

fn first_bytes(path: &Path) -> io::Result<Vec<u8>> {
    let mut begin = Vec::new();
    File::open(path)?.take(HDF5.len() as u64).read_to_end(&mut begin)?;
    Ok(begin)
}
