//! Rational-quadratic splines for some features of a batch, forward and backward, as one autograd function.

use super::error::{check, TorchExtError};
use super::features::has_kernels;
use super::simd::Level;
use std::ffi::c_char;
use tch::Tensor;
use torch_sys::C_tensor;

/// Monotonic rational-quadratic splines on [-tail_bound, tail_bound], the identity outside; the same as in `spline.h`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct SplineShape {
    /// At least 1.
    pub bins: i64,
    pub tail_bound: f64,
    /// Smallest sizes of bins, as shares of the interval.
    pub min_width: f64,
    pub min_height: f64,
    pub min_derivative: f64,
    /// Multiplies the unconstrained widths and heights.
    pub scale: f64,
}

/// Which way a spline is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    Forward,
    Inverse,
}

extern "C" {
    fn dingo_spline(
        inputs: *const C_tensor,
        features: *const C_tensor,
        parameters: *const C_tensor,
        shape: *const SplineShape,
        inverse: bool,
        level: i32,
        outputs: *mut *mut C_tensor,
        logabsdet: *mut *mut C_tensor,
    ) -> *mut c_char;
}

/// Whether [`rational_quadratic_splines`] can be called for this batch; else the caller needs operations of its own.
pub fn has_spline_kernel(inputs: &Tensor) -> bool {
    has_kernels(inputs)
}

/// Sends the features at `features`, `[n]`, of `inputs`, `[batch, width]`, through splines, and passes on the others.
/// Gives `[batch, width]`, and the sum of the splines' log slopes, `[batch]`.
///
/// `parameters`, `[batch, n * (3 * bins - 1)]`, are for each sample and feature the unconstrained widths, heights and slopes
/// at inner knots. They may be in half precision, and be shared by the samples (`expand`). Computed in double precision
/// throughout.
///
/// # Errors
/// Shapes that do not fit, features that are not there or twice. In backward, if a graph of it is to be made.
pub fn rational_quadratic_splines(
    inputs: &Tensor,
    features: &Tensor,
    parameters: &Tensor,
    shape: &SplineShape,
    direction: Direction,
) -> Result<(Tensor, Tensor), TorchExtError> {
    splines_at_level(Level::detected(), inputs, features, parameters, shape, direction)
}

pub(super) fn splines_at_level(
    level: Level,
    inputs: &Tensor,
    features: &Tensor,
    parameters: &Tensor,
    shape: &SplineShape,
    direction: Direction,
) -> Result<(Tensor, Tensor), TorchExtError> {
    let (mut outputs, mut logabsdet) = (std::ptr::null_mut(), std::ptr::null_mut());
    // SAFETY: all arguments live through the call, `level` is one the processor has, and on success `outputs` and
    // `logabsdet` are new handles that are ours.
    unsafe {
        check(dingo_spline(
            inputs.as_ptr(),
            features.as_ptr(),
            parameters.as_ptr(),
            shape,
            direction == Direction::Inverse,
            level as i32,
            &mut outputs,
            &mut logabsdet,
        ))?;
        Ok((Tensor::from_ptr(outputs), Tensor::from_ptr(logabsdet)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::torch_ext::threads::limit_this_thread;
    use tch::{Device, Kind};

    /// Outputs, log |det|, and both gradients.
    fn results(level: Level, direction: Direction, inputs: &Tensor, parameters: &Tensor) -> [Tensor; 4] {
        let shape = SplineShape {
            bins: 8,
            tail_bound: 2.0,
            min_width: 1e-3,
            min_height: 1e-3,
            min_derivative: 1e-3,
            scale: 0.5,
        };
        let leaf = |t: &Tensor| t.copy().set_requires_grad(true);
        let (inputs, parameters) = (leaf(inputs), leaf(parameters));
        let features = Tensor::from_slice(&[4i64, 0, 2]);
        let (outputs, logabsdet) = splines_at_level(level, &inputs, &features, &parameters, &shape, direction).unwrap();
        (outputs.square().sum(Kind::Double) + logabsdet.sum(Kind::Double)).backward();
        [outputs, logabsdet, inputs.grad(), parameters.grad()]
    }

    /// Bit for bit.
    #[test]
    fn neither_instruction_sets_nor_threads_change_anything() {
        tch::manual_seed(1);
        let threads_before = tch::get_num_threads();
        for kind in [Kind::Float, Kind::Double] {
            let inputs = Tensor::randn([1001, 5], (kind, Device::Cpu)) * 1.5;
            let parameters = Tensor::randn([1001, 69], (kind, Device::Cpu)) * 3.0;
            for direction in [Direction::Forward, Direction::Inverse] {
                limit_this_thread(1);
                let expected = results(Level::Baseline, direction, &inputs, &parameters);
                for (level, threads) in Level::available()
                    .into_iter()
                    .flat_map(|level| [(level, 1), (level, 3)])
                {
                    limit_this_thread(threads);
                    let actual = results(level, direction, &inputs, &parameters);
                    for (actual, expected) in actual.iter().zip(&expected) {
                        assert!(actual.equal(expected), "{kind:?} {direction:?} {level:?} {threads}");
                    }
                }
            }
        }
        limit_this_thread(threads_before as usize);
    }
}
