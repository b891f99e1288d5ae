//! The world of ranks: bootstrap, collectives, gradient reduction. Knows nothing of models or data.
//!
//! [`World`] is made once in `main` and passed down. What a phase does on each rank alone ends in [`World::agree`]; the
//! program ends in [`World::end`]. [`GradientReducer`] sums gradients while the backward pass goes on, and
//! [`Collectives`] is how everything else reaches the other ranks with tensors.

mod agree;
mod arrivals;
mod bucket;
mod collectives;
mod communicator;
mod cuda_streams;
mod device_side;
mod devices;
mod error;
mod failure;
mod nccl;
mod nccl_watch;
mod number;
mod progress;
mod reducer;
mod stream_transport;
mod topology;
mod transport;
mod watchdog;
mod world;

pub use agree::RankFailure;
pub use collectives::{Collectives, HostCollectives, TensorCollectives};
pub use communicator::Traffic;
pub use error::SpmdError;
pub use failure::abort_job;
pub use nccl::NcclCollectives;
pub use number::Number;
pub use reducer::{hidden_share, GradientReducer, Reduced, ReducerOptions, RANK_SLOTS, SCALAR_SLOTS};
pub use world::{mpi_library, World};
