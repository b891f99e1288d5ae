//! What libtorch has and `tch` does not expose: a thin C++ side and its safe Rust face.

pub mod random;
mod simd;
pub mod strain;
pub mod threads;
