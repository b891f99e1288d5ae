//! `local_cache_path`: a data file copied once to a folder on the node, so that training does not read over the network.

use super::DataError;
use std::fs::{self, File, FileTimes, Metadata};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Gives the path of `file` in `folder`, and copies it there if `copies` is set.
///
/// Of all ranks on a node one sets `copies`; the others may open the file only after that one has returned (a barrier
/// between the two is up to the caller). The copy appears under its name only when it is complete. One that is there
/// already, with the size and modification time of the original, is used as it is.
pub fn copy_to_node(file: &Path, folder: &Path, copies: bool) -> Result<PathBuf, DataError> {
    let fail = |path: &Path, error: io::Error| DataError::File {
        file: path.display().to_string(),
        message: format!("cannot be copied to local_cache_path {}: {error}", folder.display()),
    };
    let name = file
        .file_name()
        .ok_or_else(|| fail(file, io::ErrorKind::InvalidInput.into()))?;
    let copy = folder.join(name);
    if !copies {
        return Ok(copy);
    }
    let original = fs::metadata(file).map_err(|error| fail(file, error))?;
    if fs::metadata(&copy).is_ok_and(|existing| is_same(&original, &existing)) {
        log::info!("Using the copy of {} in {}", file.display(), folder.display());
        return Ok(copy);
    }
    log::info!("Copying file to {}", copy.display());
    let start = Instant::now();
    let partial = folder.join(format!(".{}.{}.part", name.to_string_lossy(), std::process::id()));
    let copied = fs::create_dir_all(folder).and_then(|()| copy_with_time(file, &partial, &original));
    if let Err(error) = copied.and_then(|()| fs::rename(&partial, &copy)) {
        // What was written so far would only fill the node's disk.
        let _ = fs::remove_file(&partial);
        return Err(fail(file, error));
    }
    let seconds = start.elapsed().as_secs();
    log::info!("Done. This took {:2}:{:2} min.", seconds / 60, seconds % 60);
    Ok(copy)
}

fn copy_with_time(file: &Path, to: &Path, original: &Metadata) -> io::Result<()> {
    fs::copy(file, to)?;
    let copy = File::open(to)?;
    copy.set_times(FileTimes::new().set_modified(original.modified()?))?;
    copy.sync_all()
}

fn is_same(original: &Metadata, existing: &Metadata) -> bool {
    let same_time = matches!((original.modified(), existing.modified()), (Ok(a), Ok(b)) if a == b);
    existing.is_file() && original.len() == existing.len() && same_time
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_once_and_again_when_the_original_changes() {
        let folder = tempfile::tempdir().unwrap();
        let original = folder.path().join("waveforms.hdf5");
        let cache = folder.path().join("node/cache");
        fs::write(&original, "first").unwrap();

        let copy = copy_to_node(&original, &cache, false).unwrap();
        assert!(!copy.exists(), "a rank that does not copy only learns the name");
        assert_eq!(copy_to_node(&original, &cache, true).unwrap(), copy);
        assert_eq!(fs::read_to_string(&copy).unwrap(), "first");

        // Same size and time: left alone.
        let time = fs::metadata(&copy).unwrap().modified().unwrap();
        fs::write(&copy, "FIRST").unwrap();
        File::options()
            .write(true)
            .open(&copy)
            .unwrap()
            .set_modified(time)
            .unwrap();
        copy_to_node(&original, &cache, true).unwrap();
        assert_eq!(fs::read_to_string(&copy).unwrap(), "FIRST");

        fs::write(&original, "second").unwrap();
        copy_to_node(&original, &cache, true).unwrap();
        assert_eq!(fs::read_to_string(&copy).unwrap(), "second");
        assert_eq!(fs::read_dir(&cache).unwrap().count(), 1, "no partial copies are left");
    }

    #[test]
    fn failures_name_the_file_and_leave_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let missing = folder.path().join("missing.hdf5");
        let error = copy_to_node(&missing, folder.path(), true).unwrap_err().to_string();
        assert!(
            error.contains("missing.hdf5") && error.contains("local_cache_path"),
            "{error}"
        );

        let original = folder.path().join("waveforms.hdf5");
        fs::write(&original, "first").unwrap();
        let occupied = folder.path().join("occupied");
        fs::create_dir_all(occupied.join("waveforms.hdf5/in_the_way")).unwrap();
        assert!(copy_to_node(&original, &occupied, true).is_err());
        assert_eq!(fs::read_dir(&occupied).unwrap().count(), 1);
    }
}
