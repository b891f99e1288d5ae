//! Linear layers as one autograd function, alone or in groups, their products by the library that was chosen
//! ([`matmul`](super::matmul)).
//!
//! Nothing is computed for what requires no gradient. The gradients of parameters that belong to a gradient reducer are
//! added where they lie. Autocast, other kinds than single precision and other devices get libtorch's own operations.

use super::error::{check, TorchExtError};
use std::ffi::c_char;
use std::ops::Range;
use tch::Tensor;
use torch_sys::C_tensor;

/// Columns of one of a group's inputs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InputColumns {
    /// Which input.
    pub input: usize,
    pub columns: Range<usize>,
}

impl InputColumns {
    /// All `width` columns of an input.
    pub fn all(input: usize, width: usize) -> Self {
        InputColumns {
            input,
            columns: 0..width,
        }
    }
}

/// A layer of a group.
#[derive(Debug)]
pub struct LinearLayer<'a> {
    /// `[out_features, in_features]`.
    pub weight: &'a Tensor,
    /// `[out_features]`.
    pub bias: &'a Tensor,
    /// What it reads, one after the other: `in_features` columns.
    pub reads: &'a [InputColumns],
    /// Which output it writes. Layers of the same output write it side by side, in their order.
    pub output: usize,
}

#[repr(C)]
struct RawPart {
    input: i64,
    column: i64,
    width: i64,
}

#[repr(C)]
struct RawLayer {
    weight: *const C_tensor,
    bias: *const C_tensor,
    parts: *const RawPart,
    part_count: i64,
    output: i64,
}

extern "C" {
    fn dingo_linear_group(
        inputs: *const *const C_tensor,
        input_count: i64,
        layers: *const RawLayer,
        layer_count: i64,
        output_count: i64,
        outputs: *mut *mut C_tensor,
    ) -> *mut c_char;
}

/// y = x Wᵀ + b: `[batch, in_features]`, `[out_features, in_features]`, `[out_features]` to `[batch, out_features]`.
///
/// # Errors
/// Shapes that do not fit.
pub fn linear(input: &Tensor, weight: &Tensor, bias: &Tensor) -> Result<Tensor, TorchExtError> {
    let width = input.size().get(1).copied().unwrap_or(0) as usize;
    let layer = LinearLayer {
        weight,
        bias,
        reads: &[InputColumns::all(0, width)],
        output: 0,
    };
    let outputs = linear_group(&[input], &[layer])?;
    Ok(outputs.into_iter().next().expect("one output of one layer"))
}

/// The outputs of all layers of a group, for inputs of shape `[batch, width]` whose rows may lie apart. Different layers
/// read the same columns or different ones, and every output up to the last is written.
///
/// # Errors
/// Shapes that do not fit, a layer that reads or writes what is not there.
pub fn linear_group(inputs: &[&Tensor], layers: &[LinearLayer]) -> Result<Vec<Tensor>, TorchExtError> {
    let outputs = layers.iter().map(|layer| layer.output + 1).max().unwrap_or(0);
    let is_written = |output| layers.iter().any(|layer| layer.output == output);
    let reads_inputs = |layer: &LinearLayer| layer.reads.iter().all(|part| part.input < inputs.len());
    if !(0..outputs).all(is_written) || !layers.iter().all(reads_inputs) || inputs.is_empty() {
        let message = format!(
            "linear layers of {} inputs and {outputs} outputs: {layers:?}",
            inputs.len()
        );
        return Err(TorchExtError(message));
    }
    let parts: Vec<Vec<RawPart>> = layers.iter().map(|layer| raw_parts(layer.reads)).collect();
    let raw_layer = |(layer, parts): (&LinearLayer, &Vec<RawPart>)| RawLayer {
        weight: layer.weight.as_ptr(),
        bias: layer.bias.as_ptr(),
        parts: parts.as_ptr(),
        part_count: parts.len() as i64,
        output: layer.output as i64,
    };
    let raw: Vec<RawLayer> = layers.iter().zip(&parts).map(raw_layer).collect();
    let input_pointers: Vec<*const C_tensor> = inputs.iter().map(|input| input.as_ptr()).collect();
    let mut output_pointers = vec![std::ptr::null_mut(); outputs];
    // SAFETY: all tensors and lists live through the call and have the lengths given; on success each output is a new
    // handle that is ours.
    unsafe {
        check(dingo_linear_group(
            input_pointers.as_ptr(),
            input_pointers.len() as i64,
            raw.as_ptr(),
            raw.len() as i64,
            outputs as i64,
            output_pointers.as_mut_ptr(),
        ))?;
        Ok(output_pointers
            .into_iter()
            .map(|output| Tensor::from_ptr(output))
            .collect())
    }
}

fn raw_parts(reads: &[InputColumns]) -> Vec<RawPart> {
    let raw = |part: &InputColumns| RawPart {
        input: part.input as i64,
        column: part.columns.start as i64,
        width: part.columns.end as i64 - part.columns.start as i64,
    };
    reads.iter().map(raw).collect()
}

#[cfg(test)]
#[path = "linear_tests.rs"]
mod tests;
