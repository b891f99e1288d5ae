//! The end of a gated residual block.

use super::error::{check, TorchExtError};
use super::simd::Level;
use std::ffi::c_char;
use tch::Tensor;
use torch_sys::C_tensor;

extern "C" {
    fn dingo_gated_residual(
        skip: *const C_tensor,
        a: *const C_tensor,
        gate: *const C_tensor,
        level: i32,
        output: *mut *mut C_tensor,
    ) -> *mut c_char;
}

/// `skip + a * sigmoid(gate)`, each `[batch, features]`, as one autograd function. The rows of `gate` may lie apart (a
/// slice of columns).
///
/// # Errors
/// Shapes that differ.
pub fn gated_residual(skip: &Tensor, a: &Tensor, gate: &Tensor) -> Result<Tensor, TorchExtError> {
    gated_residual_at(Level::detected(), skip, a, gate)
}

fn gated_residual_at(level: Level, skip: &Tensor, a: &Tensor, gate: &Tensor) -> Result<Tensor, TorchExtError> {
    let mut output = std::ptr::null_mut();
    // SAFETY: the tensors live through the call, and on success `output` is a new handle that is ours.
    unsafe {
        let (skip, a, gate) = (skip.as_ptr(), a.as_ptr(), gate.as_ptr());
        check(dingo_gated_residual(skip, a, gate, level as i32, &mut output))?;
        Ok(Tensor::from_ptr(output))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tch::{Device, Kind};

    fn numbers(shape: [i64; 2], step: f64, kind: Kind) -> Tensor {
        let values = Tensor::arange(shape[0] * shape[1], (Kind::Double, Device::Cpu)) * step;
        let values = values.sin().view(shape) * 5.0;
        // What all types hold.
        values.to_kind(Kind::BFloat16).to_kind(kind).set_requires_grad(true)
    }

    /// Output and gradients of `block` for a gate that is a slice of a wider matrix; the gate reaches 90 either way.
    fn outcome(kind: Kind, shape: [i64; 2], block: impl Fn(&Tensor, &Tensor, &Tensor) -> Tensor) -> Vec<Tensor> {
        let (skip, a) = (numbers(shape, 0.3, kind), numbers(shape, 0.7, kind));
        let wide = (numbers([shape[0], 2 * shape[1] + 1], 1.1, kind) * 18)
            .detach()
            .set_requires_grad(true);
        let y = block(&skip, &a, &wide.narrow(1, shape[1], shape[1]));
        (&y * numbers(shape, 1.9, kind).detach()).sum(Kind::Double).backward();
        vec![y.detach(), skip.grad(), a.grad(), wide.grad()]
    }

    fn plain(skip: &Tensor, a: &Tensor, gate: &Tensor) -> Tensor {
        skip + Tensor::cat(&[a, gate], 1).glu(1)
    }

    #[test]
    fn equals_plain_operations() {
        let kinds = [
            (Kind::Float, 1e-5),
            (Kind::Double, 1e-10),
            (Kind::BFloat16, 1.0 / 256.0),
        ];
        for shape in [[1, 1], [3, 17], [200, 130]] {
            let expected = outcome(Kind::Double, shape, plain);
            for (kind, tolerance) in kinds {
                let found = outcome(kind, shape, |skip, a, gate| gated_residual(skip, a, gate).unwrap());
                for (i, (found, expected)) in found.iter().zip(&expected).enumerate() {
                    assert_eq!(found.kind(), kind);
                    let error = (found.to_kind(Kind::Double) - expected).abs().max().double_value(&[]);
                    let scale = expected.abs().max().double_value(&[]).max(1.0);
                    assert!(
                        error <= tolerance * scale,
                        "{shape:?} {kind:?} {i}: {error:e} of {scale:e}"
                    );
                }
            }
        }
    }

    #[test]
    fn all_builds_and_numbers_of_threads_give_the_same_bits() {
        let outcome = |level| {
            outcome(Kind::Float, [300, 130], |s, a, g| {
                gated_residual_at(level, s, a, g).unwrap()
            })
        };
        let threads = tch::get_num_threads();
        tch::set_num_threads(1);
        let expected = outcome(Level::Baseline);
        for level in Level::available() {
            for threads in [1, 2, 3] {
                tch::set_num_threads(threads);
                assert_eq!(outcome(level), expected, "{level:?} {threads}");
            }
        }
        tch::set_num_threads(threads);
    }

    #[test]
    fn mixed_types_and_frozen_parts() {
        let shape = [4, 3];
        let [skip, a, gate] = [0.3, 0.7, 1.1].map(|step| numbers(shape, step, Kind::Float));
        let expected = plain(&skip, &a, &gate);
        let mixed = gated_residual(&skip, &a.to_kind(Kind::BFloat16), &gate).unwrap();
        assert!((mixed - &expected).abs().max().double_value(&[]) < 1e-5);

        for trained in 0..3 {
            let mut parts = [0.3, 0.7, 1.1].map(|step| numbers(shape, step, Kind::Float).detach());
            parts[trained] = parts[trained].set_requires_grad(true);
            let y = gated_residual(&parts[0], &parts[1], &parts[2]).unwrap();
            y.sum(Kind::Float).backward();
            let [skip, a, gate] = [0.3, 0.7, 1.1].map(|step| numbers(shape, step, Kind::Float));
            plain(&skip, &a, &gate).sum(Kind::Float).backward();
            let expected = [skip, a, gate][trained].grad();
            assert!(
                (parts[trained].grad() - expected).abs().max().double_value(&[]) < 1e-5,
                "{trained}"
            );
        }

        let error = gated_residual(&skip, &a, &gate.narrow(0, 0, 3)).unwrap_err();
        assert!(error.to_string().contains("[3, 3]"), "{error}");
    }
}
