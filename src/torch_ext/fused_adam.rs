//! Adam and AdamW over all parameters in one call.

use super::error::{check, TorchExtError};
use std::ffi::c_char;
use tch::Tensor;
use torch_sys::C_tensor;

/// PyTorch's options of Adam (`torch.optim.Adam`, `AdamW`).
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct AdamOptions {
    pub lr: f64,
    pub beta1: f64,
    pub beta2: f64,
    pub weight_decay: f64,
    pub eps: f64,
    pub amsgrad: bool,
    pub maximize: bool,
    /// AdamW instead of Adam: the decay acts on the parameter, not through the gradient.
    pub decoupled_weight_decay: bool,
}

/// One entry per parameter in each list; all of one parameter's tensors have its shape, kind and device.
pub struct AdamTensors<'a> {
    pub parameters: &'a [Tensor],
    pub gradients: &'a [Tensor],
    pub exp_avgs: &'a [Tensor],
    pub exp_avg_sqs: &'a [Tensor],
    /// Empty without `amsgrad`.
    pub max_exp_avg_sqs: &'a [Tensor],
    /// Float scalars: the number of this step, so already raised by one.
    pub steps: &'a [Tensor],
}

extern "C" {
    fn dingo_fused_adam(
        count: usize,
        parameters: *const *const C_tensor,
        gradients: *const *const C_tensor,
        exp_avgs: *const *const C_tensor,
        exp_avg_sqs: *const *const C_tensor,
        max_exp_avg_sqs: *const *const C_tensor,
        steps: *const *const C_tensor,
        options: AdamOptions,
        grad_scale: *const C_tensor,
        found_inf: *const C_tensor,
    ) -> *mut c_char;
}

/// One step of Adam or AdamW, in place. `grad_scale` (a float scalar) divides the gradients first; with `found_inf` (a
/// float scalar) not zero nothing is changed.
///
/// # Errors
/// Lists of different lengths, or what libtorch says about the tensors.
pub fn fused_adam(
    tensors: &AdamTensors,
    options: AdamOptions,
    grad_scale: Option<&Tensor>,
    found_inf: Option<&Tensor>,
) -> Result<(), TorchExtError> {
    let count = tensors.parameters.len();
    let maxima = if options.amsgrad { count } else { 0 };
    for (name, list, expected) in [
        ("gradients", tensors.gradients, count),
        ("exp_avgs", tensors.exp_avgs, count),
        ("exp_avg_sqs", tensors.exp_avg_sqs, count),
        ("max_exp_avg_sqs", tensors.max_exp_avg_sqs, maxima),
        ("steps", tensors.steps, count),
    ] {
        if list.len() != expected {
            return Err(TorchExtError(format!(
                "fused Adam: {} {name}, expected {expected}",
                list.len()
            )));
        }
    }
    let pointers = |list: &[Tensor]| list.iter().map(Tensor::as_ptr).collect::<Vec<_>>();
    let pointer = |tensor: Option<&Tensor>| tensor.map_or(std::ptr::null(), Tensor::as_ptr);
    // SAFETY: every list has `count` live tensors (the maxima are read only with amsgrad); null stands for an absent
    // tensor.
    unsafe {
        check(dingo_fused_adam(
            count,
            pointers(tensors.parameters).as_ptr(),
            pointers(tensors.gradients).as_ptr(),
            pointers(tensors.exp_avgs).as_ptr(),
            pointers(tensors.exp_avg_sqs).as_ptr(),
            pointers(tensors.max_exp_avg_sqs).as_ptr(),
            pointers(tensors.steps).as_ptr(),
            options,
            pointer(grad_scale),
            pointer(found_inf),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tch::{Device, Kind};

    /// The first step of Adam moves each entry by lr * sign(gradient), up to eps.
    #[test]
    fn first_step_and_found_inf() {
        let parameter = Tensor::zeros([3], (Kind::Float, Device::Cpu));
        let tensors = AdamTensors {
            parameters: &[parameter.shallow_clone()],
            gradients: &[Tensor::from_slice(&[2.0f32, -3.0, 0.0])],
            exp_avgs: &[parameter.zeros_like()],
            exp_avg_sqs: &[parameter.zeros_like()],
            max_exp_avg_sqs: &[],
            steps: &[Tensor::from(1.0f32)],
        };
        let options = AdamOptions {
            lr: 0.1,
            beta1: 0.9,
            beta2: 0.999,
            weight_decay: 0.0,
            eps: 1e-8,
            amsgrad: false,
            maximize: false,
            decoupled_weight_decay: false,
        };
        fused_adam(&tensors, options, None, Some(&Tensor::from(1.0f32))).unwrap();
        assert_eq!(Vec::<f32>::try_from(&parameter).unwrap(), [0.0, 0.0, 0.0]);
        fused_adam(&tensors, options, None, None).unwrap();
        for (found, expected) in Vec::<f32>::try_from(&parameter).unwrap().iter().zip([-0.1, 0.1, 0.0]) {
            assert!((found - expected).abs() < 1e-6, "{found} {expected}");
        }
        assert!(fused_adam(
            &tensors,
            AdamOptions {
                amsgrad: true,
                ..options
            },
            None,
            None
        )
        .is_err());
    }
}
