//! The one error of this layer, and the flaw that becomes one once the file is known.

use std::io;
use std::path::{Path, PathBuf};

/// What went wrong with a checkpoint. Reading problems are the fault of the file handed in, writing problems are not:
/// [`CheckpointError::is_bad_input`] tells them apart. A reason is part of the message, and no `source()` that would be told
/// a second time.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    #[error("cannot read the checkpoint {}: {reason}", path.display())]
    Read { path: PathBuf, reason: io::Error },
    /// Not a checkpoint, damaged, or holding something that is not plain data.
    #[error("{}: {message}", path.display())]
    Format { path: PathBuf, message: String },
    /// `key` is the dotted path inside the checkpoint, such as `metadata.train_settings`.
    #[error("{}: {key}: {message}", path.display())]
    Key {
        path: PathBuf,
        key: String,
        message: String,
    },
    /// Nothing stands at `path` that did not stand there before.
    #[error("cannot write the checkpoint {}: {reason}; an earlier file of that name is intact", path.display())]
    Write { path: PathBuf, reason: io::Error },
}

impl CheckpointError {
    /// What stands at a key is not what it must be, by the verdict of whoever uses it.
    pub fn invalid(path: &Path, key: impl Into<String>, message: impl Into<String>) -> Self {
        CheckpointError::Key {
            path: path.to_owned(),
            key: key.into(),
            message: message.into(),
        }
    }

    /// True if the file to be read is at fault, false if writing failed.
    pub fn is_bad_input(&self) -> bool {
        !matches!(self, CheckpointError::Write { .. })
    }
}

/// A problem found below the level where the file's name is known.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Flaw {
    key: Option<String>,
    message: String,
}

impl Flaw {
    pub fn new(message: impl Into<String>) -> Self {
        Flaw {
            key: None,
            message: message.into(),
        }
    }

    pub fn at(key: impl Into<String>, message: impl Into<String>) -> Self {
        Flaw {
            key: Some(key.into()),
            message: message.into(),
        }
    }

    /// Puts `parent` in front of the key.
    pub fn under(self, parent: &str) -> Self {
        let key = match self.key {
            Some(key) => format!("{parent}.{key}"),
            None => parent.to_string(),
        };
        Flaw {
            key: Some(key),
            message: self.message,
        }
    }

    /// Says where in the file, in front of the message.
    pub fn note(self, place: &str) -> Self {
        Flaw {
            message: format!("{place}: {}", self.message),
            ..self
        }
    }

    pub fn in_file(self, path: &Path) -> CheckpointError {
        let path = path.to_path_buf();
        match self.key {
            Some(key) => CheckpointError::Key {
                path,
                key,
                message: self.message,
            },
            None => CheckpointError::Format {
                path,
                message: self.message,
            },
        }
    }

    /// For the writing side, where the file's name is added by [`CheckpointError::Write`].
    pub fn into_io_error(self) -> io::Error {
        io::Error::other(match self.key {
            Some(key) => format!("{key}: {}", self.message),
            None => self.message,
        })
    }
}

impl From<tch::TchError> for Flaw {
    fn from(error: tch::TchError) -> Self {
        Flaw::new(format!("libtorch: {error}"))
    }
}
