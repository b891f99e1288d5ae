//! Dingo's `.pt` format, read and written.
//!
//! From the outside in: [`Checkpoint`] is what the file means, [`Object`] the tree of plain data it holds, the pickle its
//! notation, and a zip of stored entries the container. Reading never executes anything from the file.

mod archive;
mod atomic_file;
mod contents;
mod element_type;
mod error;
mod export;
mod fields;
mod file;
mod hdf5_model;
mod json;
mod object;
mod optimizer_state;
mod pickle;
mod state_dict;
mod value;
mod zip_writer;

pub use atomic_file::replace_file;
pub use contents::{Checkpoint, Metadata, TrainingState, DINGO_VERSION};
pub use error::CheckpointError;
pub use export::{export, with_model_version, ModelFormat};
pub use object::{Dict, Object};
pub use optimizer_state::{OptimizerState, ParameterGroup, StateEntry};
