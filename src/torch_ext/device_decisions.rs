//! What a training step needs to decide on the device whether it is made, so that the host need not wait to know.

use super::error::{check, TorchExtError};
use std::ffi::c_char;
use tch::Tensor;
use torch_sys::C_tensor;

/// PyTorch's options of Adam and AdamW.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FusedAdamOptions {
    pub lr: f64,
    pub beta1: f64,
    pub beta2: f64,
    pub weight_decay: f64,
    pub eps: f64,
    pub amsgrad: bool,
    /// AdamW: the decay acts on the parameter, not through the gradient.
    pub decoupled_weight_decay: bool,
}

/// One parameter's tensors, all of its shape, kind and device.
pub struct FusedAdamTensors<'a> {
    pub parameter: &'a Tensor,
    pub gradient: &'a Tensor,
    /// `exp_avg`, `exp_avg_sq` and with `amsgrad` `max_exp_avg_sq`.
    pub slots: &'a [Tensor],
    /// A float, `[]`: the updates so far.
    pub steps: &'a Tensor,
}

extern "C" {
    fn dingo_unscale_and_check(
        count: usize,
        gradients: *const *const C_tensor,
        inverse_scale: *const C_tensor,
        loss: *const C_tensor,
        found: *mut *mut C_tensor,
    ) -> *mut c_char;
    fn dingo_update_scale(
        scale: *const C_tensor,
        growth_tracker: *const C_tensor,
        found: *const C_tensor,
        growth_factor: f64,
        backoff_factor: f64,
        growth_interval: i64,
    ) -> *mut c_char;
    fn dingo_fused_adam(
        count: usize,
        parameters: *const *const C_tensor,
        gradients: *const *const C_tensor,
        exp_avgs: *const *const C_tensor,
        exp_avg_sqs: *const *const C_tensor,
        max_exp_avg_sqs: *const *const C_tensor,
        steps: *const *const C_tensor,
        options: FusedAdamOptions,
        found: *const C_tensor,
    ) -> *mut c_char;
}

/// Multiplies the gradients by `inverse_scale` (a float, `[1]`) in place. Gives a float, `[1]`: 1 where one of them or `loss`
/// (one number) is not finite, else 0.
///
/// # Errors
/// What libtorch says of the tensors.
pub fn unscale_and_check(gradients: &[Tensor], inverse_scale: &Tensor, loss: &Tensor) -> Result<Tensor, TorchExtError> {
    let pointers: Vec<_> = gradients.iter().map(Tensor::as_ptr).collect();
    let mut found = std::ptr::null_mut();
    // SAFETY: `count` live tensors and two more; on success `found` is a new handle that is ours.
    unsafe {
        let (count, gradients) = (pointers.len(), pointers.as_ptr());
        check(dingo_unscale_and_check(
            count,
            gradients,
            inverse_scale.as_ptr(),
            loss.as_ptr(),
            &mut found,
        ))?;
        Ok(Tensor::from_ptr(found))
    }
}

/// The rule of `torch.amp.GradScaler`, in place: `scale` is a float, `growth_tracker` an int, `found` what
/// [`unscale_and_check`] gives, each `[1]`.
///
/// # Errors
/// What libtorch says of the tensors.
pub fn update_scale(
    scale: &Tensor,
    growth_tracker: &Tensor,
    found: &Tensor,
    [growth_factor, backoff_factor]: [f64; 2],
    growth_interval: i64,
) -> Result<(), TorchExtError> {
    // SAFETY: three live tensors.
    unsafe {
        check(dingo_update_scale(
            scale.as_ptr(),
            growth_tracker.as_ptr(),
            found.as_ptr(),
            growth_factor,
            backoff_factor,
            growth_interval,
        ))
    }
}

/// One step of Adam or AdamW for all parameters in place, and one more in their `steps`; nothing of that where `found` is 1.
///
/// # Errors
/// Fewer slots than the rule has, or what libtorch says of the tensors.
pub fn fused_adam(
    tensors: &[FusedAdamTensors],
    options: FusedAdamOptions,
    found: &Tensor,
) -> Result<(), TorchExtError> {
    let slots = 2 + usize::from(options.amsgrad);
    if let Some(short) = tensors.iter().find(|tensors| tensors.slots.len() < slots) {
        let message = format!("Adam with {slots} slots for a parameter with {}", short.slots.len());
        return Err(TorchExtError(message));
    }
    let pointers = |of: &dyn Fn(&FusedAdamTensors) -> *const C_tensor| tensors.iter().map(of).collect::<Vec<_>>();
    let slot = |place: usize| match place < slots {
        true => pointers(&|tensors| tensors.slots[place].as_ptr()),
        false => Vec::new(),
    };
    // SAFETY: every list has `count` live tensors; that of the maxima is read only with amsgrad.
    unsafe {
        check(dingo_fused_adam(
            tensors.len(),
            pointers(&|tensors| tensors.parameter.as_ptr()).as_ptr(),
            pointers(&|tensors| tensors.gradient.as_ptr()).as_ptr(),
            slot(0).as_ptr(),
            slot(1).as_ptr(),
            slot(2).as_ptr(),
            pointers(&|tensors| tensors.steps.as_ptr()).as_ptr(),
            options,
            found.as_ptr(),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tch::{Device, Kind};

    fn float(value: f32) -> Tensor {
        Tensor::from_slice(&[value])
    }

    #[test]
    fn gradients_are_unscaled_and_checked_with_the_loss() {
        let check = |gradient: f32, loss: f64| {
            let gradients = [Tensor::from_slice(&[2.0f32, -4.0]), float(gradient)];
            let found = unscale_and_check(&gradients, &float(0.5), &Tensor::from(loss)).unwrap();
            (found.double_value(&[0]), gradients[0].double_value(&[1]))
        };
        assert_eq!(check(6.0, 1.0), (0.0, -2.0));
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            assert_eq!(check(bad, 1.0).0, 1.0);
            assert_eq!(check(6.0, f64::from(bad)).0, 1.0);
        }
    }

    /// The first step of Adam moves each entry by lr * sign(gradient), up to eps.
    #[test]
    fn a_step_that_is_not_to_be_made_changes_nothing() {
        let parameter = Tensor::zeros([3], (Kind::Float, Device::Cpu));
        let slots = [parameter.zeros_like(), parameter.zeros_like()];
        let (gradient, steps) = (Tensor::from_slice(&[2.0f32, -3.0, 0.0]), Tensor::from(0.0f32));
        let options = FusedAdamOptions {
            lr: 0.1,
            beta1: 0.9,
            beta2: 0.999,
            weight_decay: 0.0,
            eps: 1e-8,
            amsgrad: false,
            decoupled_weight_decay: false,
        };
        let step = |found: f32| {
            let tensors = FusedAdamTensors {
                parameter: &parameter,
                gradient: &gradient,
                slots: &slots,
                steps: &steps,
            };
            fused_adam(&[tensors], options, &float(found)).unwrap();
            (steps.double_value(&[]), Vec::<f32>::try_from(&parameter).unwrap())
        };
        assert_eq!(step(1.0), (0.0, vec![0.0; 3]));
        let (steps_made, moved) = step(0.0);
        assert_eq!(steps_made, 1.0);
        for (found, expected) in moved.iter().zip([-0.1, 0.1, 0.0]) {
            assert!((found - expected).abs() < 1e-6, "{found} {expected}");
        }
        let short = FusedAdamTensors {
            parameter: &parameter,
            gradient: &gradient,
            slots: &slots[..1],
            steps: &steps,
        };
        assert!(fused_adam(&[short], options, &float(0.0)).is_err());
    }
}
