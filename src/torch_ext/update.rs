//! An optimizer's step over all parameters in one pass over memory: the Rust face of `kernels/update.h`.

use super::error::{check, TorchExtError};
use super::simd::Level;
use std::ffi::c_char;
use std::ptr::null;
use tch::{Device, Tensor};
use torch_sys::C_tensor;

/// Slots that a rule has at most.
const MAX_SLOTS: usize = 3;

/// What happens to every element of a parameter: a rule of PyTorch's, with what changes from step to step folded into its
/// options. `l2` is weight decay through the gradient.
#[repr(C, u32)]
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ElementUpdate {
    /// Slots: `exp_avg`, `exp_avg_sq` and with `amsgrad` `max_exp_avg_sq`.
    Adam(AdamOptions),
    /// Slot: `momentum_buffer`, if any.
    Sgd(SgdOptions),
    /// Slots: `square_avg`, then those of `momentum_buffer` and `grad_avg` that there are.
    RmsProp(RmsPropOptions),
    /// Slot: `sum`.
    Adagrad(AdagradOptions),
}

/// Adam and AdamW.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AdamOptions {
    /// Learning rate over the first bias correction, 1 - beta1^t.
    pub step_size: f64,
    pub beta1: f64,
    pub beta2: f64,
    /// Square root of the second bias correction, 1 - beta2^t.
    pub root_correction: f64,
    pub eps: f64,
    pub l2: f64,
    /// What AdamW's decay leaves of a parameter: 1 - lr · weight_decay, else 1.
    pub shrink: f64,
    pub amsgrad: bool,
}

#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SgdOptions {
    pub lr: f64,
    pub l2: f64,
    /// The buffer becomes `keep` · buffer + `take` · gradient.
    pub keep: f64,
    pub take: f64,
    pub momentum: f64,
    pub has_buffer: bool,
    pub nesterov: bool,
}

#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RmsPropOptions {
    pub lr: f64,
    pub alpha: f64,
    pub eps: f64,
    pub l2: f64,
    pub momentum: f64,
    pub has_buffer: bool,
    pub centered: bool,
}

#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AdagradOptions {
    /// With the decay of the learning rate.
    pub lr: f64,
    pub eps: f64,
    pub l2: f64,
}

impl ElementUpdate {
    fn slots(&self) -> usize {
        match self {
            ElementUpdate::Adam(options) => 2 + usize::from(options.amsgrad),
            ElementUpdate::Sgd(options) => usize::from(options.has_buffer),
            ElementUpdate::RmsProp(options) => 1 + usize::from(options.has_buffer) + usize::from(options.centered),
            ElementUpdate::Adagrad(_) => 1,
        }
    }
}

/// One parameter, its gradient and its slots, all alike in shape and kind (Float or Double) and contiguous; all in host
/// memory, or all on a GPU.
#[derive(Debug)]
pub struct Update<'a> {
    pub parameter: &'a Tensor,
    pub gradient: &'a Tensor,
    /// Those of the rule, in its order.
    pub slots: &'a [Tensor],
    pub element: ElementUpdate,
}

/// The same as in `update.cpp`.
#[repr(C)]
struct RawUpdate {
    parameter: *const C_tensor,
    gradient: *const C_tensor,
    slots: [*const C_tensor; MAX_SLOTS],
    element: ElementUpdate,
}

extern "C" {
    fn dingo_update_lists(
        element: *const ElementUpdate,
        count: usize,
        parameters: *const *const C_tensor,
        gradients: *const *const C_tensor,
        slots: *const *const C_tensor,
        inverse_scale: f64,
    ) -> *mut c_char;
    fn dingo_update(level: i32, count: usize, updates: *const RawUpdate, inverse_scale: f64) -> *mut c_char;
}

/// Changes parameters and slots in place, from gradients times `inverse_scale` (which stay as they are). In host memory the
/// same bits whatever the number of threads and the processor.
///
/// # Errors
/// Tensors that are not as [`Update`] says, or fewer slots than the rule has. Nothing is changed then.
pub fn update_in_place(updates: &[Update], inverse_scale: f64) -> Result<(), TorchExtError> {
    match updates.first().map(|update| update.parameter.device()) {
        None | Some(Device::Cpu) => update_at_level(Level::detected(), updates, inverse_scale),
        Some(_) => update_lists(updates, inverse_scale),
    }
}

/// By libtorch's operations on lists, for any device: parameters whose elements are updated alike together.
fn update_lists(updates: &[Update], inverse_scale: f64) -> Result<(), TorchExtError> {
    let mut left: Vec<&Update> = updates.iter().collect();
    while let Some(element) = left.first().map(|update| update.element) {
        let (alike, others): (Vec<&Update>, Vec<&Update>) =
            left.into_iter().partition(|update| update.element == element);
        let slots = element.slots();
        if let Some(update) = alike.iter().find(|update| update.slots.len() < slots) {
            let message = format!("an update of {slots} slots for a parameter with {}", update.slots.len());
            return Err(TorchExtError(message));
        }
        let parameters: Vec<_> = alike.iter().map(|update| update.parameter.as_ptr()).collect();
        let gradients: Vec<_> = alike.iter().map(|update| update.gradient.as_ptr()).collect();
        let of_slot = |slot: usize| alike.iter().map(move |update| update.slots[slot].as_ptr());
        let slots: Vec<_> = (0..slots).flat_map(of_slot).collect();
        // SAFETY: `count` live tensors in each list, and in that of the slots as many times `count` as the rule has slots.
        unsafe {
            check(dingo_update_lists(
                &element,
                alike.len(),
                parameters.as_ptr(),
                gradients.as_ptr(),
                slots.as_ptr(),
                inverse_scale,
            ))?
        };
        left = others;
    }
    Ok(())
}

fn update_at_level(level: Level, updates: &[Update], inverse_scale: f64) -> Result<(), TorchExtError> {
    let raw = updates.iter().map(|update| {
        let mut slots = [null(); MAX_SLOTS];
        for (place, slot) in slots.iter_mut().zip(update.slots) {
            *place = slot.as_ptr();
        }
        RawUpdate {
            parameter: update.parameter.as_ptr(),
            gradient: update.gradient.as_ptr(),
            slots,
            element: update.element,
        }
    });
    let raw: Vec<RawUpdate> = raw.collect();
    // SAFETY: `count` updates of live tensors, checked in C++ before anything is written; a level that the processor has.
    unsafe { check(dingo_update(level as i32, raw.len(), raw.as_ptr(), inverse_scale)) }
}

#[cfg(test)]
#[path = "update_tests.rs"]
mod tests;
