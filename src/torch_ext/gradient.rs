//! A leaf's gradient: assigning it (to a view into a larger buffer), clearing it, and being told when it is complete.

use super::error::{check, TorchExtError};
use std::ffi::{c_char, c_void};
use tch::Tensor;
use torch_sys::C_tensor;

extern "C" {
    fn dingo_set_post_accumulate_grad_hook(
        leaf: *const C_tensor,
        call: extern "C" fn(*mut c_void),
        drop: extern "C" fn(*mut c_void),
        closure: *mut c_void,
    ) -> *mut c_char;
    fn dingo_remove_post_accumulate_grad_hook(leaf: *const C_tensor) -> *mut c_char;
    fn dingo_set_grad(leaf: *const C_tensor, gradient: *const C_tensor) -> *mut c_char;
}

type Hook = Box<dyn Fn() + Send>;

extern "C" fn call_hook(closure: *mut c_void) {
    // SAFETY: `closure` is the Box<Hook> given to C++ below, alive until `drop_hook`.
    let hook = unsafe { &*closure.cast::<Hook>() };
    hook();
}

extern "C" fn drop_hook(closure: *mut c_void) {
    // SAFETY: C++ calls this once, when it lets go of the closure.
    drop(unsafe { Box::from_raw(closure.cast::<Hook>()) });
}

/// Keeps a hook in place; dropping it removes the hook.
#[must_use]
pub struct HookHandle {
    leaf: Tensor,
}

impl Drop for HookHandle {
    fn drop(&mut self) {
        // SAFETY: `leaf` is alive; removing a hook cannot fail for a tensor that had one, and there is no one to tell.
        let _ = unsafe { check(dingo_remove_post_accumulate_grad_hook(self.leaf.as_ptr())) };
    }
}

/// Has `hook` called whenever a backward pass has finished adding to the gradient of `leaf`, on the thread that runs
/// that part of the backward pass. A panic in `hook` ends the process.
///
/// # Errors
/// If `leaf` is not a leaf that requires grad, or has such a hook already.
pub fn set_post_accumulate_grad_hook(leaf: &Tensor, hook: Hook) -> Result<HookHandle, TorchExtError> {
    let closure: *mut Hook = Box::into_raw(Box::new(hook));
    // SAFETY: C++ owns the closure from here on, also on failure; `call_hook` and `drop_hook` know its type.
    unsafe {
        check(dingo_set_post_accumulate_grad_hook(
            leaf.as_ptr(),
            call_hook,
            drop_hook,
            closure.cast(),
        ))?
    };
    Ok(HookHandle {
        leaf: leaf.shallow_clone(),
    })
}

/// Makes `gradient` (same shape, kind and device) the gradient of `leaf`; backward passes then add to it in place.
pub fn set_grad(leaf: &Tensor, gradient: &Tensor) -> Result<(), TorchExtError> {
    // SAFETY: both tensors are alive during the call.
    unsafe { check(dingo_set_grad(leaf.as_ptr(), gradient.as_ptr())) }
}

/// Makes the gradient of `leaf` undefined, as before the first backward pass.
pub fn clear_grad(leaf: &Tensor) -> Result<(), TorchExtError> {
    // SAFETY: `leaf` is alive during the call; null clears.
    unsafe { check(dingo_set_grad(leaf.as_ptr(), std::ptr::null())) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::Arc;
    use tch::{Device, Kind};

    #[test]
    fn hook_is_called_after_accumulation_until_dropped() {
        let leaf = Tensor::ones([3], (Kind::Float, Device::Cpu)).set_requires_grad(true);
        let calls = Arc::new(AtomicUsize::new(0));
        let counter = calls.clone();
        let handle = set_post_accumulate_grad_hook(
            &leaf,
            Box::new(move || {
                counter.fetch_add(1, Ordering::Relaxed);
            }),
        )
        .unwrap();
        let second = set_post_accumulate_grad_hook(&leaf, Box::new(|| {}));
        assert!(second.err().unwrap().to_string().contains("already"));
        // Used twice in one graph: one accumulation, one call.
        (&leaf * &leaf).sum(Kind::Float).backward();
        assert_eq!(calls.load(Ordering::Relaxed), 1);
        drop(handle);
        assert_eq!(Arc::strong_count(&calls), 1, "the closure is released with the handle");
        (&leaf * 2.0).sum(Kind::Float).backward();
        assert_eq!(calls.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn gradient_accumulates_into_the_given_view() {
        let leaf = Tensor::ones([2, 2], (Kind::Float, Device::Cpu)).set_requires_grad(true);
        let flat = Tensor::zeros([10], (Kind::Float, Device::Cpu));
        set_grad(&leaf, &flat.narrow(0, 3, 4).view([2, 2])).unwrap();
        (&leaf * 3.0).sum(Kind::Float).backward();
        assert_eq!(
            Vec::<f32>::try_from(&flat).unwrap(),
            [0., 0., 0., 3., 3., 3., 3., 0., 0., 0.]
        );
        clear_grad(&leaf).unwrap();
        assert!(!leaf.grad().defined());
        let wrong = set_grad(&leaf, &Tensor::zeros([4], (Kind::Float, Device::Cpu)));
        assert!(wrong.unwrap_err().to_string().contains("[2, 2]"));
    }

    #[test]
    fn hooks_need_a_leaf() {
        let leaf = Tensor::ones([2], (Kind::Float, Device::Cpu)).set_requires_grad(true);
        assert!(set_post_accumulate_grad_hook(&(&leaf * 2.0), Box::new(|| {})).is_err());
    }
}
