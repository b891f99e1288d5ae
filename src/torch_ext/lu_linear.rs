//! An LU-decomposed linear map and its log determinant as one autograd function.

use super::error::{check, TorchExtError};
use std::ffi::c_char;
use tch::{Device, Kind, Tensor};
use torch_sys::C_tensor;

extern "C" {
    fn dingo_lu_linear(
        input: *const C_tensor,
        bias: *const C_tensor,
        lower_entries: *const C_tensor,
        upper_entries: *const C_tensor,
        diagonal: *const C_tensor,
        eps: f64,
        output: *mut *mut C_tensor,
        logabsdet: *mut *mut C_tensor,
    ) -> *mut c_char;
}

/// The parameters of W = L U and the bias.
#[derive(Debug, Clone, Copy)]
pub struct LuParameters<'a> {
    /// `[n]`.
    pub bias: &'a Tensor,
    /// Below the unit diagonal of L, row by row: `[n (n - 1) / 2]`.
    pub lower_entries: &'a Tensor,
    /// Above the diagonal of U, row by row: `[n (n - 1) / 2]`.
    pub upper_entries: &'a Tensor,
    /// `[n]`; the diagonal of U is its softplus plus `eps`.
    pub unconstrained_upper_diag: &'a Tensor,
    pub eps: f64,
}

/// Whether [`lu_linear`] takes an input like this one.
pub fn lu_linear_takes(input: &Tensor) -> bool {
    input.device() == Device::Cpu && input.kind() == Kind::Float
}

/// y = L U x + b, `[batch, n]` to `[batch, n]`, and log |det L U|, which is one number for all samples: `[]`.
///
/// # Errors
/// Shapes that do not fit, other tensors than of single precision on the host.
pub fn lu_linear(input: &Tensor, parameters: LuParameters) -> Result<(Tensor, Tensor), TorchExtError> {
    let (mut output, mut logabsdet) = (std::ptr::null_mut(), std::ptr::null_mut());
    // SAFETY: all tensors live through the call, and on success both results are new handles that are ours.
    unsafe {
        check(dingo_lu_linear(
            input.as_ptr(),
            parameters.bias.as_ptr(),
            parameters.lower_entries.as_ptr(),
            parameters.upper_entries.as_ptr(),
            parameters.unconstrained_upper_diag.as_ptr(),
            parameters.eps,
            &mut output,
            &mut logabsdet,
        ))?;
        Ok((Tensor::from_ptr(output), Tensor::from_ptr(logabsdet)))
    }
}
