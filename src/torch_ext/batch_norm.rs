//! Batch normalization, over the batches of all ranks or of one, and the activation after it.

use super::activation::Activation;
use super::error::{check, message_for_cpp, TorchExtError};
use super::simd::Level;
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
    /// One whole number, counted up by a pass in training.
    pub num_batches_tracked: Option<&'a Tensor>,
}

/// Which statistics a pass normalizes by.
#[derive(Clone, Copy)]
pub enum BatchStatistics<'a> {
    /// The running ones (evaluation).
    Running,
    /// Those of the input (training).
    Batch,
    /// Those of all ranks' inputs (training). All ranks call, and run their backward, in the same order.
    AllRanks(&'a Arc<dyn RankStatistics>),
}

#[derive(Clone, Copy)]
pub struct BatchNormOptions<'a> {
    pub statistics: BatchStatistics<'a>,
    pub momentum: f64,
    pub eps: f64,
    pub activation: Activation,
}

/// The same as in `rank_statistics.h`.
#[repr(C)]
struct RankCallbacks {
    context: *mut c_void,
    all_gather: extern "C" fn(*mut c_void, *const C_tensor, *mut *mut C_tensor) -> *mut c_char,
    all_reduce_sum: extern "C" fn(*mut c_void, *const C_tensor) -> *mut c_char,
    drop: extern "C" fn(*mut c_void),
}

/// The same as in `batch_norm.cpp`.
#[repr(C)]
struct RawBatchNorm {
    weight: *const C_tensor,
    bias: *const C_tensor,
    running_mean: *const C_tensor,
    running_var: *const C_tensor,
    num_batches_tracked: *const C_tensor,
    momentum: f64,
    eps: f64,
    activation: i32,
    training: i32,
    has_ranks: i32,
    level: i32,
    ranks: RankCallbacks,
}

extern "C" {
    fn dingo_batch_norm(
        input: *const C_tensor,
        layer: *const RawBatchNorm,
        output: *mut *mut C_tensor,
        skip: *mut *mut C_tensor,
    ) -> *mut c_char;
}

type SharedRanks = Arc<dyn RankStatistics>;

/// Calls `body` with the ranks behind `context`; a panic becomes a message, since it must not unwind into C++.
fn call_back(context: *mut c_void, body: impl FnOnce(&dyn RankStatistics) -> Result<(), String>) -> *mut c_char {
    // SAFETY: `context` is the Box<SharedRanks> given to C++ in `raw_batch_norm`, alive until `drop_ranks`.
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

impl RankCallbacks {
    /// C++ owns `context` from here on.
    fn new(ranks: Option<&SharedRanks>) -> Self {
        let context = ranks.map_or(std::ptr::null_mut(), |ranks| Box::into_raw(Box::new(ranks.clone())));
        RankCallbacks {
            context: context.cast(),
            all_gather,
            all_reduce_sum,
            drop: drop_ranks,
        }
    }
}

/// Normalizes `input` of shape `[batch, channels, ...]` by the mean and variance of its channels, then applies weight,
/// bias and activation. In training the running statistics move by `momentum` towards those of the batch, to the same
/// bits on all ranks that share it. Counts may differ between ranks, and a rank may have no rows at all.
///
/// The gradients of weight and bias are those of this rank's rows, to be summed over ranks like every other gradient.
/// Half-precision input is normalized in single precision.
///
/// # Errors
/// Shapes that do not fit, in training fewer than two values per channel (over all ranks), or a collective that failed.
/// In the backward pass they arrive as the error of `Tensor::f_backward`.
pub fn batch_norm(
    input: &Tensor,
    tensors: BatchNormTensors,
    options: BatchNormOptions,
) -> Result<Tensor, TorchExtError> {
    let mut output = std::ptr::null_mut();
    let layer = raw_batch_norm(tensors, options, Level::detected());
    // SAFETY: all tensors live through the call, null stands for an absent one, and on success `output` is a new
    // handle that is ours.
    unsafe {
        check(dingo_batch_norm(
            input.as_ptr(),
            &layer,
            &mut output,
            std::ptr::null_mut(),
        ))?;
        Ok(Tensor::from_ptr(output))
    }
}

/// As [`batch_norm`]; also gives `input` once more, for a connection past the layer. What flows back through that is
/// added to the input's gradient in the pass that makes it.
///
/// # Errors
/// As [`batch_norm`].
pub fn batch_norm_with_skip(
    input: &Tensor,
    tensors: BatchNormTensors,
    options: BatchNormOptions,
) -> Result<(Tensor, Tensor), TorchExtError> {
    with_skip_at(Level::detected(), input, tensors, options)
}

fn with_skip_at(
    level: Level,
    input: &Tensor,
    tensors: BatchNormTensors,
    options: BatchNormOptions,
) -> Result<(Tensor, Tensor), TorchExtError> {
    let (mut output, mut skip) = (std::ptr::null_mut(), std::ptr::null_mut());
    let layer = raw_batch_norm(tensors, options, level);
    // SAFETY: as in `batch_norm`.
    unsafe {
        check(dingo_batch_norm(input.as_ptr(), &layer, &mut output, &mut skip))?;
        Ok((Tensor::from_ptr(output), Tensor::from_ptr(skip)))
    }
}

/// [`batch_norm`] over the batches of all ranks, without an activation.
///
/// # Errors
/// As [`batch_norm`].
pub fn sync_batch_norm(
    input: &Tensor,
    tensors: BatchNormTensors,
    momentum: f64,
    eps: f64,
    ranks: &Arc<dyn RankStatistics>,
) -> Result<Tensor, TorchExtError> {
    let options = BatchNormOptions {
        statistics: BatchStatistics::AllRanks(ranks),
        momentum,
        eps,
        activation: Activation::None,
    };
    batch_norm(input, tensors, options)
}

fn raw_batch_norm(tensors: BatchNormTensors, options: BatchNormOptions, level: Level) -> RawBatchNorm {
    let pointer = |tensor: Option<&Tensor>| tensor.map_or(std::ptr::null(), Tensor::as_ptr);
    let ranks = match options.statistics {
        BatchStatistics::AllRanks(ranks) => Some(ranks),
        _ => None,
    };
    RawBatchNorm {
        weight: pointer(tensors.weight),
        bias: pointer(tensors.bias),
        running_mean: pointer(tensors.running_mean),
        running_var: pointer(tensors.running_var),
        num_batches_tracked: pointer(tensors.num_batches_tracked),
        momentum: options.momentum,
        eps: options.eps,
        activation: options.activation as i32,
        training: i32::from(!matches!(options.statistics, BatchStatistics::Running)),
        has_ranks: i32::from(ranks.is_some()),
        level: level as i32,
        ranks: RankCallbacks::new(ranks),
    }
}

#[cfg(test)]
#[path = "batch_norm_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "device_batch_norm_tests.rs"]
mod device_tests;
