//! The folder that a run lives in.

use super::TrainError;
use std::fs::{self, File};
use std::path::Path;

/// Whether the train dir can be made, or written to when it is there: known before the long preparation of what goes into it.
/// Makes nothing that stays.
///
/// # Errors
/// [`TrainError::TrainDir`] with the reason.
pub fn check_train_dir(train_dir: &Path) -> Result<(), TrainError> {
    let fail = |message: String| {
        Err(TrainError::TrainDir {
            path: train_dir.to_owned(),
            message,
        })
    };
    let existing = existing_part(train_dir);
    if !existing.is_dir() {
        return match existing == train_dir {
            true => fail("is not a folder".into()),
            false => fail(format!("cannot be made: {} is not a folder", existing.display())),
        };
    }
    let probe = existing.join(format!(".dingo-spmd-{}", std::process::id()));
    match File::create(&probe).and_then(|_| fs::remove_file(&probe)) {
        Ok(()) => Ok(()),
        Err(error) => fail(format!("cannot write to {}: {error}", existing.display())),
    }
}

/// The part of a path that is there already.
pub(super) fn existing_part(train_dir: &Path) -> &Path {
    let existing = train_dir
        .ancestors()
        .find(|folder| fs::symlink_metadata(folder).is_ok());
    // A relative path that does not exist at all is to be made in the working directory.
    existing.unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_can_be_made_or_is_there_passes_and_stays_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        for train_dir in [folder.path().to_owned(), folder.path().join("a/b")] {
            check_train_dir(&train_dir).unwrap();
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn files_are_no_folders() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        let message = |path: &Path| check_train_dir(path).unwrap_err().to_string();
        assert!(message(&file).ends_with("file: is not a folder"));
        assert!(message(&file.join("run")).contains("file/run: cannot be made: "));
        std::os::unix::fs::symlink("nowhere", folder.path().join("link")).unwrap();
        assert!(message(&folder.path().join("link")).ends_with("link: is not a folder"));
    }
}
