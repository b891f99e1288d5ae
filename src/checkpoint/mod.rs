//! Dingo's `.pt` format, read and written.

mod optimizer_state;

pub use optimizer_state::{OptimizerState, ParameterGroup, StateEntry};
