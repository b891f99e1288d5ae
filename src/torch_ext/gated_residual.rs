//! The end of a gated residual block.

use super::error::{check, TorchExtError};
use super::simd::Level;
use std::ffi::c_char;
use tch::Tensor;
use torch_sys::C_tensor;

extern "C" {
    fn dingo_gated_residual(
        skip: *const C_tensor,
        a: *const C_tensor,
        gate: *const C_tensor,
        level: i32,
        output: *mut *mut C_tensor,
    ) -> *mut c_char;
}

/// `skip + a * sigmoid(gate)`, each `[batch, features]`, as one autograd function. The rows of `gate` may lie apart (a
/// slice of columns).
///
/// # Errors
/// Shapes that differ.
pub fn gated_residual(skip: &Tensor, a: &Tensor, gate: &Tensor) -> Result<Tensor, TorchExtError> {
    gated_residual_at(Level::detected(), skip, a, gate)
}

fn gated_residual_at(level: Level, skip: &Tensor, a: &Tensor, gate: &Tensor) -> Result<Tensor, TorchExtError> {
    let mut output = std::ptr::null_mut();
    // SAFETY: the tensors live through the call, and on success `output` is a new handle that is ours.
    unsafe {
        let (skip, a, gate) = (skip.as_ptr(), a.as_ptr(), gate.as_ptr());
        check(dingo_gated_residual(skip, a, gate, level as i32, &mut output))?;
        Ok(Tensor::from_ptr(output))
    }
}
