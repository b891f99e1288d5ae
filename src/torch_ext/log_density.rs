//! The density of noise and the log determinants of a flow's transforms, added up in one autograd function.

use super::error::{check, TorchExtError};
use std::ffi::c_char;
use tch::{Device, Kind, Tensor};
use torch_sys::C_tensor;

extern "C" {
    fn dingo_log_density(
        terms: *const *const C_tensor,
        count: i64,
        noise: *const C_tensor,
        batch: i64,
        output: *mut *mut C_tensor,
    ) -> *mut c_char;
}

/// The sum of `terms`, each `[batch]` or, the same for all samples, `[]`, and of the log-density of `noise`,
/// `[batch, features]`, under the standard normal distribution, if it is given: `[batch]`. What is not of single precision on
/// the host is summed by libtorch's own operations.
///
/// # Errors
/// Shapes that do not fit.
pub fn log_density(terms: &[&Tensor], noise: Option<&Tensor>, batch: i64) -> Result<Tensor, TorchExtError> {
    let is_ours = |tensor: &&Tensor| tensor.device() == Device::Cpu && tensor.kind() == Kind::Float;
    if !terms.iter().chain(&noise).all(is_ours) {
        return by_plain_operations(terms, noise, batch);
    }
    let pointers: Vec<*const C_tensor> = terms.iter().map(|term| term.as_ptr()).collect();
    let noise = noise.map_or(std::ptr::null(), Tensor::as_ptr);
    let mut output = std::ptr::null_mut();
    // SAFETY: all tensors live through the call, null stands for no noise, and on success the output is a new handle that is
    // ours.
    unsafe {
        check(dingo_log_density(
            pointers.as_ptr(),
            pointers.len() as i64,
            noise,
            batch,
            &mut output,
        ))?;
        Ok(Tensor::from_ptr(output))
    }
}

fn by_plain_operations(terms: &[&Tensor], noise: Option<&Tensor>, batch: i64) -> Result<Tensor, TorchExtError> {
    let mut sum = noise.map(|noise| {
        let log_z = 0.5 * noise.size()[1] as f64 * (2.0 * std::f64::consts::PI).ln();
        noise.square().sum_dim_intlist(1, false, None::<Kind>) * -0.5 - log_z
    });
    for &term in terms {
        sum = Some(sum.map_or_else(|| term.shallow_clone(), |sum| sum + term));
    }
    match sum {
        Some(sum) => sum
            .f_expand([batch], false)
            .map_err(|error| TorchExtError(error.to_string())),
        None => Err(TorchExtError("a sum of no terms".into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tch::kind;

    #[test]
    fn sums_and_gradients_are_those_of_plain_operations() {
        tch::manual_seed(2);
        let leaf = |shape: &[i64]| Tensor::randn(shape, kind::FLOAT_CPU).set_requires_grad(true);
        let (noise, a, b, c) = (leaf(&[7, 3]), leaf(&[7]), leaf(&[]), leaf(&[]));
        let (terms, leaves) = ([&a, &b, &c], [&noise, &a, &b, &c]);
        for noise in [Some(&noise), None] {
            let wanted = if noise.is_some() { &leaves[..] } else { &leaves[1..] };
            let gradients =
                |sum: &Tensor| Tensor::run_backward(&[(sum * sum.sin()).sum(Kind::Float)], wanted, false, false);
            let ours = log_density(&terms, noise, 7).unwrap();
            let theirs = by_plain_operations(&terms, noise, 7).unwrap();
            assert_eq!(ours.size(), [7]);
            assert!(ours.allclose(&theirs, 1e-5, 1e-5, false), "{ours} {theirs}");
            for (ours, theirs) in gradients(&ours).iter().zip(gradients(&theirs)) {
                assert!(ours.allclose(&theirs, 1e-4, 1e-5, false), "{ours} {theirs}");
            }
        }
        assert_eq!(log_density(&[&b], None, 4).unwrap().size(), [4]);
        assert!(log_density(&[&a], None, 6).is_err());
        assert!(log_density(&[&a], Some(&noise), 6).is_err());
        assert_eq!(
            log_density(&[&b.to_kind(Kind::Double)], None, 4).unwrap().kind(),
            Kind::Double
        );
    }
}
