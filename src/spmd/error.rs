//! The one error of this layer.

use crate::torch_ext::TorchExtError;

/// What can go wrong between ranks.
#[derive(Debug, thiserror::Error)]
pub enum SpmdError {
    #[error("{call} failed: {message}")]
    Mpi { call: &'static str, message: String },
    /// A collective on GPUs, with what it is for and its number among those.
    #[error("{purpose}, collective {number} on the GPU: {error}")]
    Device {
        purpose: &'static str,
        number: u64,
        error: TorchExtError,
    },
    /// A tensor that the collectives or the reducer cannot handle, or a wrong order of calls.
    #[error("{0}")]
    Usage(String),
    #[error(transparent)]
    TorchExt(#[from] TorchExtError),
    #[error(transparent)]
    Tch(#[from] tch::TchError),
}

pub(super) type Result<T> = std::result::Result<T, SpmdError>;
