//! What libtorch has and `tch` does not expose: a thin C++ side and its safe Rust face.

mod activation;
mod autocast;
mod batch_norm;
pub mod cuda;
mod device_decisions;
mod error;
mod features;
mod float_precision;
mod gated_residual;
mod gradient;
mod gradient_norm;
mod host_pool;
mod linear;
mod log_density;
mod lu_linear;
mod matmul;
mod op_counter;
pub mod random;
mod simd;
mod spline;
pub mod strain;
pub mod threads;
mod update;

pub use activation::Activation;
pub use autocast::Autocast;
pub use batch_norm::{
    batch_norm, batch_norm_with_skip, sync_batch_norm, BatchNormOptions, BatchNormTensors, BatchStatistics,
    RankStatistics,
};
pub use device_decisions::{fused_adam, unscale_and_check, update_scale, FusedAdamOptions, FusedAdamTensors};
pub use error::TorchExtError;
pub use features::{select_and_pass_on, select_features};
pub use float_precision::{float32_matmul_precision, set_float32_matmul_precision};
pub use gated_residual::gated_residual;
pub use gradient::{clear_grad, set_grad, set_post_accumulate_grad_hook, HookHandle};
pub use gradient_norm::{clear, square_norm, SquareNorm};
pub use host_pool::HostPool;
pub use linear::{linear, linear_group, InputColumns, LinearLayer};
pub use log_density::log_density;
pub use lu_linear::{lu_linear, lu_linear_takes, LuParameters};
pub use matmul::{
    choose_matrix_library, chosen_matrix_library, measure_matrix_libraries, product, MatrixLibrary, MatrixSpeed,
};
pub use op_counter::OpCounter;
pub use spline::{has_spline_kernel, rational_quadratic_splines, Direction, SplineShape};
pub use update::{update_in_place, AdagradOptions, AdamOptions, ElementUpdate, RmsPropOptions, SgdOptions, Update};
