//! Any tree of objects as a `.pt` file: the zip, the pickle in it, and the atomic way it comes to the disk.

use super::archive::{write_archive, ArchiveReader};
use super::atomic_file::replace_file;
use super::error::{CheckpointError, Flaw};
use super::object::Object;
use super::pickle;
use std::fs::File;
use std::path::Path;

impl Object {
    /// What `torch.load(path, map_location="cpu", weights_only=True)` would give.
    ///
    /// # Errors
    /// The file is missing or unreadable, is none that `torch.save` writes, is damaged, or holds anything but data.
    pub fn load(path: impl AsRef<Path>) -> Result<Object, CheckpointError> {
        let path = path.as_ref();
        let file = File::open(path).map_err(|reason| CheckpointError::Read {
            path: path.to_path_buf(),
            reason,
        })?;
        read(file).map_err(|flaw| flaw.in_file(path))
    }

    /// Writes the file in place of what stands at `path`, all of it or nothing.
    ///
    /// # Errors
    /// [`CheckpointError::Write`] with the operating system's reason, such as a full disk.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<(), CheckpointError> {
        let path = path.as_ref();
        // As PyTorch names it; where the name is not UTF-8, as PyTorch names it for streams.
        let folder = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or("archive");
        let written = pickle::encode(self)
            .map_err(Flaw::into_io_error)
            .and_then(|contents| replace_file(path, |out| write_archive(out, folder, &contents)));
        written.map_err(|reason| CheckpointError::Write {
            path: path.to_path_buf(),
            reason,
        })
    }
}

fn read(file: File) -> Result<Object, Flaw> {
    let mut archive = ArchiveReader::open(file)?;
    let pickle = archive.pickle()?;
    pickle::decode(&pickle, &mut archive)
}
