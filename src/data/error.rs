//! The one error of this layer.

/// What is wrong with a data file, or with what the settings ask of it.
#[derive(Debug, thiserror::Error)]
pub enum DataError {
    /// The file cannot be used: missing, truncated, not HDF5, a group or shape that is not as it must be.
    #[error("{file}: {message}")]
    File { file: String, message: String },
    /// The settings ask for what the data cannot give; `key` is the dotted path in the settings.
    #[error("{key}: {message}")]
    Setting { key: String, message: String },
    /// libtorch refused an operation, such as an allocation.
    #[error(transparent)]
    Torch(#[from] tch::TchError),
    #[error(transparent)]
    TorchExt(#[from] crate::torch_ext::TorchExtError),
    /// A batch could not be made.
    #[error("data pipeline: {0}")]
    Compute(String),
}

impl From<crate::torch_ext::strain::ShapeError> for DataError {
    fn from(error: crate::torch_ext::strain::ShapeError) -> DataError {
        DataError::Compute(error.to_string())
    }
}
