//! What libtorch has and `tch` does not expose: a thin C++ side and its safe Rust face.

mod autocast;
pub mod cuda;
mod error;
mod float_precision;
mod fused_adam;
mod gradient;
mod op_counter;
pub mod random;
mod simd;
pub mod strain;
mod sync_batch_norm;
pub mod threads;
mod unscale;

pub use autocast::Autocast;
pub use error::TorchExtError;
pub use float_precision::{float32_matmul_precision, set_float32_matmul_precision};
pub use fused_adam::{fused_adam, AdamOptions, AdamTensors};
pub use gradient::{clear_grad, set_grad, set_post_accumulate_grad_hook, HookHandle};
pub use op_counter::OpCounter;
pub use sync_batch_norm::{sync_batch_norm, BatchNormTensors, RankStatistics};
pub use unscale::unscale_and_check;
