//! Selecting features of a batch, forward and backward, without a call of an operator.

use super::error::{check, TorchExtError};
use std::ffi::c_char;
use tch::{Device, Kind, Tensor};
use torch_sys::C_tensor;

extern "C" {
    fn dingo_select_features(
        inputs: *const C_tensor,
        places: *const C_tensor,
        selected: *mut *mut C_tensor,
        all: *mut *mut C_tensor,
    ) -> *mut c_char;
}

/// Whether the functions of this layer that work on a batch of samples have a kernel for it.
pub(super) fn has_kernels(inputs: &Tensor) -> bool {
    inputs.device() == Device::Cpu && matches!(inputs.kind(), Kind::Float | Kind::Double)
}

/// Of `inputs`, `[batch, features]`, those at `places`, `[n]`, in that order: `[batch, n]`.
///
/// # Errors
/// Places that are not there.
pub fn select_features(inputs: &Tensor, places: &Tensor) -> Result<Tensor, TorchExtError> {
    if !has_kernels(inputs) {
        return Ok(inputs.f_index_select(1, places)?);
    }
    let mut selected = std::ptr::null_mut();
    // SAFETY: both tensors live through the call; on success `selected` is a new handle that is ours.
    unsafe {
        let all = std::ptr::null_mut();
        check(dingo_select_features(
            inputs.as_ptr(),
            places.as_ptr(),
            &mut selected,
            all,
        ))?;
        Ok(Tensor::from_ptr(selected))
    }
}

/// As [`select_features`], and all inputs again, for what uses both: in backward their gradients are then summed here,
/// without an operation of its own.
///
/// # Errors
/// Places that are not there.
pub fn select_and_pass_on(inputs: &Tensor, places: &Tensor) -> Result<(Tensor, Tensor), TorchExtError> {
    if !has_kernels(inputs) {
        return Ok((inputs.f_index_select(1, places)?, inputs.shallow_clone()));
    }
    let (mut selected, mut all) = (std::ptr::null_mut(), std::ptr::null_mut());
    // SAFETY: both tensors live through the call; on success `selected` and `all` are new handles that are ours.
    unsafe {
        check(dingo_select_features(
            inputs.as_ptr(),
            places.as_ptr(),
            &mut selected,
            &mut all,
        ))?;
        Ok((Tensor::from_ptr(selected), Tensor::from_ptr(all)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOUBLE: (Kind, Device) = (Kind::Double, Device::Cpu);

    fn batch() -> Tensor {
        Tensor::arange(12, DOUBLE).view([3, 4])
    }

    #[test]
    fn selects_in_the_order_asked_for() {
        let places = Tensor::from_slice(&[2i64, 0]);
        for inputs in [batch(), batch().tr().contiguous().tr(), batch().to_kind(Kind::Float)] {
            let selected = select_features(&inputs, &places).unwrap();
            assert_eq!(selected, inputs.index_select(1, &places));
            let (again, all) = select_and_pass_on(&inputs, &places).unwrap();
            assert_eq!((again, all), (selected, inputs));
        }
        let none = Tensor::from_slice::<i64>(&[]);
        assert_eq!(select_features(&batch(), &none).unwrap().size(), [3, 0]);
        assert_eq!(
            select_features(&batch().narrow(0, 0, 0), &places).unwrap().size(),
            [0, 2]
        );
    }

    #[test]
    fn gradients_of_the_part_and_the_whole_add_up() {
        let places = Tensor::from_slice(&[2i64, 0, 2]);
        let weights = Tensor::arange(9, DOUBLE).view([3, 3]);
        let gradient = |loss: &dyn Fn(&Tensor) -> Tensor| {
            let leaf = batch().set_requires_grad(true);
            loss(&leaf).backward();
            leaf.grad()
        };
        let part = |t: &Tensor| (t * &weights).sum(Kind::Double);
        let expected = gradient(&|x| part(&x.index_select(1, &places)));
        assert_eq!(gradient(&|x| part(&select_features(x, &places).unwrap())), expected);
        let whole = |x: &Tensor| x.square().sum(Kind::Double);
        let (by_part, by_whole) = (expected, gradient(&whole));
        let both = |x: &Tensor| {
            let (selected, all) = select_and_pass_on(x, &places).unwrap();
            part(&selected) + whole(&all)
        };
        assert_eq!(gradient(&both), by_part + &by_whole);
        assert_eq!(
            gradient(&|x| whole(&select_and_pass_on(x, &places).unwrap().1)),
            by_whole
        );
    }

    #[test]
    fn places_that_are_not_there_are_refused() {
        for place in [-1i64, 4] {
            let error = select_features(&batch(), &Tensor::from_slice(&[place])).unwrap_err();
            assert!(error.to_string().contains(&format!("feature {place} of 4")), "{error}");
        }
        assert!(select_features(&batch(), &Tensor::from_slice(&[1i32])).is_err());
        assert!(select_features(&batch().get(0), &Tensor::from_slice(&[1i64])).is_err());
    }
}
