//! Batch normalization over the batches of all ranks, forward and backward, as one autograd function.

use super::error::{check, message_for_cpp, TorchExtError};
use std::ffi::{c_char, c_void};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::Arc;
use tch::Tensor;
use torch_sys::C_tensor;

/// How batch normalization reaches the other ranks. All ranks make the same calls in the same order.
pub trait RankStatistics: Send + Sync {
    /// From `local` of shape `[k]` on each rank to `[ranks, k]` on all, in the order of ranks.
    fn all_gather(&self, local: &Tensor) -> Result<Tensor, String>;
    /// Replaces `values` (contiguous) by their sum over ranks, the same bits everywhere.
    fn all_reduce_sum(&self, values: &Tensor) -> Result<(), String>;
}

/// The tensors of a batch-normalization layer, each `[channels]`.
#[derive(Clone, Copy, Default)]
pub struct BatchNormTensors<'a> {
    pub weight: Option<&'a Tensor>,
    pub bias: Option<&'a Tensor>,
    pub running_mean: Option<&'a Tensor>,
    /// Updated with the unbiased variance, as PyTorch does.
    pub running_var: Option<&'a Tensor>,
}

#[repr(C)]
struct Ranks {
    context: *mut c_void,
    all_gather: extern "C" fn(*mut c_void, *const C_tensor, *mut *mut C_tensor) -> *mut c_char,
    all_reduce_sum: extern "C" fn(*mut c_void, *const C_tensor) -> *mut c_char,
    drop: extern "C" fn(*mut c_void),
}

extern "C" {
    fn dingo_sync_batch_norm(
        input: *const C_tensor,
        weight: *const C_tensor,
        bias: *const C_tensor,
        running_mean: *const C_tensor,
        running_var: *const C_tensor,
        momentum: f64,
        eps: f64,
        ranks: Ranks,
        output: *mut *mut C_tensor,
    ) -> *mut c_char;
}

type SharedRanks = Arc<dyn RankStatistics>;

/// Calls `body` with the ranks behind `context`; a panic becomes a message, since it must not unwind into C++.
fn call_back(context: *mut c_void, body: impl FnOnce(&dyn RankStatistics) -> Result<(), String>) -> *mut c_char {
    // SAFETY: `context` is the Box<SharedRanks> given to C++ in `sync_batch_norm`, alive until `drop_ranks`.
    let ranks = unsafe { &*context.cast::<SharedRanks>() };
    let result = catch_unwind(AssertUnwindSafe(|| body(ranks.as_ref())));
    message_for_cpp(result.unwrap_or_else(|_| Err("a collective of batch normalization panicked".into())))
}

extern "C" fn all_gather(context: *mut c_void, local: *const C_tensor, out: *mut *mut C_tensor) -> *mut c_char {
    call_back(context, |ranks| {
        // SAFETY: C++ lends a live tensor for the duration of the call; the clone has a reference of its own.
        let local = unsafe { Tensor::clone_from_ptr(local.cast_mut()) };
        let gathered = ranks.all_gather(&local)?;
        // SAFETY: `out` is a valid place; C++ takes the new handle over and deletes it.
        unsafe { *out = torch_sys::at_shallow_clone(gathered.as_ptr().cast_mut()) };
        Ok(())
    })
}

extern "C" fn all_reduce_sum(context: *mut c_void, values: *const C_tensor) -> *mut c_char {
    call_back(context, |ranks| {
        // SAFETY: as in `all_gather`.
        let values = unsafe { Tensor::clone_from_ptr(values.cast_mut()) };
        ranks.all_reduce_sum(&values)
    })
}

extern "C" fn drop_ranks(context: *mut c_void) {
    // SAFETY: C++ calls this once, when nothing can run the backward any more.
    drop(unsafe { Box::from_raw(context.cast::<SharedRanks>()) });
}

/// Normalizes `input` of shape `[batch, channels, ...]` by the mean and variance over all ranks' batches (training
/// mode), then applies weight and bias. The running statistics move by `momentum` towards the global ones, to the same
/// bits on all ranks. Counts may differ between ranks, and a rank may have no rows at all; it still has to call, and to
/// run its backward.
///
/// The gradients of weight and bias are those of this rank's rows, to be summed over ranks like every other gradient.
/// Half-precision input is normalized in single precision. `num_batches_tracked` and evaluation are the layer's
/// business.
///
/// # Errors
/// Shapes that do not fit, fewer than two values per channel over all ranks, or a collective that failed.
/// In the backward pass they arrive as the error of `Tensor::f_backward`.
pub fn sync_batch_norm(
    input: &Tensor,
    layer: BatchNormTensors,
    momentum: f64,
    eps: f64,
    ranks: &Arc<dyn RankStatistics>,
) -> Result<Tensor, TorchExtError> {
    let pointer = |tensor: Option<&Tensor>| tensor.map_or(std::ptr::null(), Tensor::as_ptr);
    let context: *mut SharedRanks = Box::into_raw(Box::new(ranks.clone()));
    let callbacks = Ranks {
        context: context.cast(),
        all_gather,
        all_reduce_sum,
        drop: drop_ranks,
    };
    let mut output = std::ptr::null_mut();
    // SAFETY: all tensors live through the call, null stands for an absent one, C++ owns `context` from here on,
    // and on success `output` is a new handle that is ours.
    unsafe {
        check(dingo_sync_batch_norm(
            input.as_ptr(),
            pointer(layer.weight),
            pointer(layer.bias),
            pointer(layer.running_mean),
            pointer(layer.running_var),
            momentum,
            eps,
            callbacks,
            &mut output,
        ))?;
        Ok(Tensor::from_ptr(output))
    }
}
