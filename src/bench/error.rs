//! What can be wrong with a request to measure.

use std::path::{Path, PathBuf};

#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// The request does not fit the settings.
    #[error("{0}")]
    Request(String),
    #[error("cannot {verb} {}: {source}", path.display())]
    Io {
        verb: &'static str,
        path: PathBuf,
        source: std::io::Error,
    },
    /// A table of measurements is not one.
    #[error("{}, line {line}: {message}", path.display())]
    Table {
        path: PathBuf,
        line: usize,
        message: String,
    },
    #[error("cannot draw {}: {message}", path.display())]
    Picture { path: PathBuf, message: String },
}

impl BenchError {
    /// Whether another request would do, rather than another disk.
    pub fn is_bad_input(&self) -> bool {
        !matches!(
            self,
            BenchError::Io {
                verb: "write" | "create",
                ..
            }
        )
    }

    pub fn io(verb: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> BenchError {
        let path = path.to_path_buf();
        move |source| BenchError::Io { verb, path, source }
    }

    pub fn request(message: impl Into<String>) -> BenchError {
        BenchError::Request(message.into())
    }
}
