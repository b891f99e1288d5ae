//! Autocast: matrix products in a short floating-point type (`torch.amp.autocast`), for as long as a guard lives.

use super::error::{check, TorchExtError};
use std::ffi::c_char;
use std::marker::PhantomData;
use tch::{Device, Kind};

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct State {
    enabled: bool,
    dtype: i8,
}

extern "C" {
    fn dingo_autocast_enter(device: i8, enabled: bool, dtype: i8, before: *mut State) -> *mut c_char;
    fn dingo_autocast_exit(device: i8, before: State);
}

/// While it lives, autocast on this thread is as it says; then it is again as it was before. Guards end in the reverse order
/// of their beginning.
#[must_use]
pub struct Autocast {
    device: i8,
    before: State,
    /// The state belongs to the thread.
    not_send: PhantomData<*const ()>,
}

impl Autocast {
    /// Matrix products on this device in `kind` (`BFloat16` or `Half`); what needs single precision stays in it, by
    /// PyTorch's lists of operators.
    ///
    /// # Errors
    /// A device that is neither CPU nor CUDA, or a kind that autocast does not know.
    pub fn on(device: Device, kind: Kind) -> Result<Autocast, TorchExtError> {
        // The numbers of c10::ScalarType.
        let dtype = match kind {
            Kind::Half => 5,
            Kind::BFloat16 => 15,
            _ => {
                let message = format!("autocast to {kind:?}; allowed are BFloat16 and Half");
                return Err(TorchExtError(message));
            }
        };
        Self::enter(device, Some(dtype))
    }

    /// No autocast inside a part of the network: what is computed there is computed in the kind that its inputs have.
    ///
    /// # Errors
    /// A device that is neither CPU nor CUDA.
    pub fn off(device: Device) -> Result<Autocast, TorchExtError> {
        Self::enter(device, None)
    }

    fn enter(device: Device, dtype: Option<i8>) -> Result<Autocast, TorchExtError> {
        // The numbers of c10::DeviceType.
        let device = match device {
            Device::Cpu => 0,
            Device::Cuda(_) => 1,
            other => return Err(TorchExtError(format!("there is no autocast on {other:?}"))),
        };
        let mut before = State::default();
        let (enabled, dtype) = (dtype.is_some(), dtype.unwrap_or_default());
        // SAFETY: `before` is a valid place; the numbers are c10's.
        unsafe { check(dingo_autocast_enter(device, enabled, dtype, &mut before))? };
        Ok(Autocast {
            device,
            before,
            not_send: PhantomData,
        })
    }
}

impl Drop for Autocast {
    fn drop(&mut self) {
        // SAFETY: brings back what `dingo_autocast_enter` found on this very thread.
        unsafe { dingo_autocast_exit(self.device, self.before) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tch::Tensor;

    fn product() -> Kind {
        let x = Tensor::ones([2, 2], (Kind::Float, Device::Cpu));
        x.matmul(&x).kind()
    }

    #[test]
    fn guards_nest_and_bring_back_what_was() {
        assert_eq!(product(), Kind::Float);
        {
            let _on = Autocast::on(Device::Cpu, Kind::BFloat16).unwrap();
            assert_eq!(product(), Kind::BFloat16);
            {
                let _off = Autocast::off(Device::Cpu).unwrap();
                assert_eq!(product(), Kind::Float);
                let _half = Autocast::on(Device::Cpu, Kind::Half).unwrap();
                assert_eq!(product(), Kind::Half);
            }
            assert_eq!(product(), Kind::BFloat16);
        }
        assert_eq!(product(), Kind::Float);
    }

    /// Each optimizer step changes the weights: a cast kept from the step before would be an old one.
    #[test]
    fn cast_weights_do_not_outlive_the_outermost_guard() {
        let mut weight = Tensor::ones([2, 2], (Kind::Float, Device::Cpu)).set_requires_grad(true);
        let x = Tensor::ones([1, 2], (Kind::Float, Device::Cpu));
        let output = |weight: &Tensor| {
            let _on = Autocast::on(Device::Cpu, Kind::BFloat16).unwrap();
            let _inner = Autocast::off(Device::Cpu).unwrap();
            drop(_inner);
            x.linear(weight, None::<Tensor>).double_value(&[0, 0])
        };
        assert_eq!(output(&weight), 2.0);
        let _ = tch::no_grad(|| weight.fill_(3.0));
        assert_eq!(output(&weight), 6.0);
    }

    #[test]
    fn other_kinds_and_devices_are_refused() {
        assert!(Autocast::on(Device::Cpu, Kind::Double).is_err());
        assert!(Autocast::on(Device::Mps, Kind::Half).is_err());
    }
}
