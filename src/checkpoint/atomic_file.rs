//! Files that are either there whole or not there: written under another name, brought to the disk, renamed.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// Puts what `write` writes at `path`, in place of what stood there. If anything fails, that stays as it was, and the
/// partial file is removed.
pub fn replace_file(path: &Path, write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>) -> io::Result<()> {
    replace_file_at(path, |partial| {
        let mut out = BufWriter::with_capacity(1 << 20, File::create(partial)?);
        write(&mut out)?;
        out.flush()
    })
}

/// The same for what `write` makes at the path that it is given, by means of its own.
pub(super) fn replace_file_at(path: &Path, write: impl FnOnce(&Path) -> io::Result<()>) -> io::Result<()> {
    let partial = partial_name(path)?;
    let written = write(&partial).and_then(|()| File::open(&partial)?.sync_all());
    let result = written.and_then(|()| fs::rename(&partial, path));
    if result.is_err() {
        // Whether it exists depends on where writing failed; that error is the one to tell.
        let _ = fs::remove_file(&partial);
        return result;
    }
    sync_folder(path)
}

/// The same each time, so that a run that was killed while writing leaves one such file at most.
fn partial_name(path: &Path) -> io::Result<PathBuf> {
    let name = path
        .file_name()
        .ok_or_else(|| io::Error::other("the path does not end in a file name"))?;
    let mut partial = OsString::from(".");
    partial.push(name);
    partial.push(".partial");
    Ok(path.with_file_name(partial))
}

/// Makes the new name survive a crash of the machine. Some network file systems cannot; the file is written all the same.
fn sync_folder(path: &Path) -> io::Result<()> {
    let folder = match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    match File::open(folder)?.sync_all() {
        Err(error) if matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported) => Ok(()),
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_write_leaves_the_old_file_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model_latest.pt");
        replace_file(&path, |out| out.write_all(b"old")).unwrap();
        let failed = replace_file(&path, |out| {
            out.write_all(b"new")?;
            Err(io::Error::other("no space"))
        });
        assert_eq!(failed.unwrap_err().to_string(), "no space");
        assert_eq!(fs::read(&path).unwrap(), b"old");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        replace_file(&path, |out| out.write_all(b"new")).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
