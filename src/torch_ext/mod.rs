//! What libtorch has and `tch` does not expose: a thin C++ side and its safe Rust face.

mod autocast;
pub mod cuda;
mod error;
mod float_precision;
mod gradient;
mod gradient_norm;
mod op_counter;
pub mod random;
mod simd;
pub mod strain;
mod sync_batch_norm;
pub mod threads;
mod update;

pub use autocast::Autocast;
pub use error::TorchExtError;
pub use float_precision::{float32_matmul_precision, set_float32_matmul_precision};
pub use gradient::{clear_grad, set_grad, set_post_accumulate_grad_hook, HookHandle};
pub use gradient_norm::{clear, square_norm, SquareNorm};
pub use op_counter::OpCounter;
pub use sync_batch_norm::{sync_batch_norm, BatchNormTensors, RankStatistics};
pub use update::{update_in_place, AdagradOptions, AdamOptions, ElementUpdate, RmsPropOptions, SgdOptions, Update};
