//! The norm of gradients and whether they are finite, in one pass over memory; and clearing them.

use super::error::{check, TorchExtError};
use super::simd::Level;
use std::ffi::c_char;
use tch::Tensor;
use torch_sys::C_tensor;

extern "C" {
    fn dingo_square_norm(
        level: i32,
        count: usize,
        tensors: *const *const C_tensor,
        scale: f64,
        square_norm: *mut f64,
        finite: *mut bool,
    ) -> *mut c_char;
    fn dingo_clear(count: usize, tensors: *const *const C_tensor) -> *mut c_char;
}

/// What one look at all gradients tells.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SquareNorm {
    /// The sum of all squares.
    pub square: f64,
    /// Whether every element is finite; then the sum is too, unless elements of double precision are huge.
    pub finite: bool,
}

/// The squared norm of all `tensors` times `scale`, added up in double precision. The same bits whatever the number of
/// threads and the processor. Waits for the device.
///
/// # Errors
/// Tensors that are not floating-point.
pub fn square_norm(tensors: &[Tensor], scale: f64) -> Result<SquareNorm, TorchExtError> {
    square_norm_at_level(Level::detected(), tensors, scale)
}

fn square_norm_at_level(level: Level, tensors: &[Tensor], scale: f64) -> Result<SquareNorm, TorchExtError> {
    let pointers: Vec<_> = tensors.iter().map(Tensor::as_ptr).collect();
    let (mut square, mut finite) = (0.0, false);
    // SAFETY: `count` live tensors, valid places for the results, and a level that the processor has.
    unsafe {
        check(dingo_square_norm(
            level as i32,
            pointers.len(),
            pointers.as_ptr(),
            scale,
            &mut square,
            &mut finite,
        ))?;
    }
    Ok(SquareNorm { square, finite })
}

/// Fills the tensors with zeros.
///
/// # Errors
/// What libtorch says of tensors that are not in host memory.
pub fn clear(tensors: &mut [Tensor]) -> Result<(), TorchExtError> {
    let pointers: Vec<_> = tensors.iter().map(Tensor::as_ptr).collect();
    // SAFETY: `count` live tensors, which nobody else writes to through these handles.
    unsafe { check(dingo_clear(pointers.len(), pointers.as_ptr())) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tch::{Device, Kind};

    /// Numbers of very different sizes, and more of them than a piece holds.
    fn gradients(kind: Kind) -> Vec<Tensor> {
        let wide = |size: i64| {
            let numbers = Tensor::arange(size, (Kind::Double, Device::Cpu));
            ((numbers * 0.7).sin() * 8.0).exp().to_kind(kind)
        };
        vec![wide(1), wide(40_001), wide(16_384).view([128, 128]), wide(0), wide(77)]
    }

    #[test]
    fn is_that_of_the_plain_operations_at_every_level() {
        for kind in [Kind::Float, Kind::Double] {
            let gradients = gradients(kind);
            let plain = |gradient: &Tensor| gradient.to_kind(Kind::Double).square().sum(Kind::Double);
            let expected: f64 = gradients.iter().map(|gradient| plain(gradient).double_value(&[])).sum();
            let found = square_norm(&gradients, 0.5).unwrap();
            assert!(found.finite);
            assert!(
                (found.square - 0.25 * expected).abs() < 1e-14 * expected,
                "{found:?} {expected}"
            );
            for level in Level::available() {
                assert_eq!(
                    square_norm_at_level(level, &gradients, 0.5).unwrap(),
                    found,
                    "{level:?}"
                );
            }
        }
    }

    #[test]
    fn does_not_depend_on_the_number_of_threads() {
        let gradients = [Tensor::arange(1_000_003, (Kind::Float, Device::Cpu)).sin()];
        let before = tch::get_num_threads();
        let norms = [1, 3].map(|threads| {
            tch::set_num_threads(threads);
            square_norm(&gradients, 1.0).unwrap()
        });
        tch::set_num_threads(before);
        assert_eq!(norms[0], norms[1]);
    }

    #[test]
    fn finds_what_is_not_finite() {
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            for place in [0, 777, 99_999] {
                let mut numbers = vec![1.0f32; 100_000];
                numbers[place] = bad;
                let gradients = [Tensor::from_slice(&[1.0f32]), Tensor::from_slice(&numbers)];
                assert!(!square_norm(&gradients, 1.0).unwrap().finite, "{bad} at {place}");
            }
        }
        let all_finite = |tensor: Tensor| square_norm(&[tensor], 1.0).unwrap().finite;
        assert!(all_finite(Tensor::from_slice(&[f32::MAX; 1000])));
        assert!(all_finite(Tensor::from_slice(&[f64::MAX; 1000])));
        assert!(!all_finite(Tensor::from_slice(&[f64::MAX, f64::INFINITY])));
        let nothing = SquareNorm {
            square: 0.0,
            finite: true,
        };
        assert_eq!(square_norm(&[], 1.0).unwrap(), nothing);
    }

    #[test]
    fn clears_all() {
        let mut gradients = gradients(Kind::Float);
        clear(&mut gradients).unwrap();
        assert_eq!(square_norm(&gradients, 1.0).unwrap().square, 0.0);
    }
}
