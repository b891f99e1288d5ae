//! Divides gradients by the loss scale and looks for infinities and NaNs, in one pass.

use super::error::{check, TorchExtError};
use std::ffi::c_char;
use tch::Tensor;
use torch_sys::C_tensor;

extern "C" {
    fn dingo_unscale_and_check(
        count: usize,
        gradients: *const *const C_tensor,
        inverse_scale: f64,
        finite: *mut bool,
    ) -> *mut c_char;
}

/// Multiplies each tensor by `inverse_scale` in place; whether every number in them was finite. Waits for the device.
///
/// # Errors
/// Tensors that are not floating-point or lie on several devices.
pub fn unscale_and_check(gradients: &[Tensor], inverse_scale: f64) -> Result<bool, TorchExtError> {
    let pointers: Vec<_> = gradients.iter().map(Tensor::as_ptr).collect();
    let mut finite = false;
    // SAFETY: `count` live tensors, and a valid place for the result.
    unsafe {
        check(dingo_unscale_and_check(
            pointers.len(),
            pointers.as_ptr(),
            inverse_scale,
            &mut finite,
        ))?;
    }
    Ok(finite)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_and_finds_what_is_not_finite() {
        let gradients = [Tensor::from_slice(&[2.0f32, -4.0]), Tensor::from_slice(&[6.0f32; 1000])];
        assert!(unscale_and_check(&gradients, 0.5).unwrap());
        assert_eq!(Vec::<f32>::try_from(&gradients[0]).unwrap(), [1.0, -2.0]);
        assert_eq!(Vec::<f32>::try_from(&gradients[1]).unwrap(), [3.0; 1000]);
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut numbers = vec![1.0f32; 1000];
            numbers[777] = bad;
            let gradients = [Tensor::from_slice(&[1.0f32]), Tensor::from_slice(&numbers)];
            assert!(!unscale_and_check(&gradients, 1.0).unwrap(), "{bad}");
        }
        assert!(unscale_and_check(&[], 1.0).unwrap());
    }
}
