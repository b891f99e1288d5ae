//! Counts ATen operator calls, the measure of how much of a step is overhead.

use super::error::{check, TorchExtError};
use std::ffi::c_char;

extern "C" {
    fn dingo_op_counter_start(handle: *mut u64) -> *mut c_char;
    fn dingo_op_counter_stop(handle: u64) -> *mut c_char;
    fn dingo_op_counter_calls() -> u64;
}

/// Counts the calls of `aten::` operators (nested ones too, as PyTorch's profiler does) in the whole process while it
/// lives.
pub struct OpCounter {
    handle: u64,
    calls_before: u64,
}

impl OpCounter {
    /// Begins to count. One counter at a time: two would count each call twice.
    pub fn start() -> Result<OpCounter, TorchExtError> {
        let mut handle = 0;
        // SAFETY: `handle` is a valid place for the result.
        unsafe { check(dingo_op_counter_start(&mut handle))? };
        // SAFETY: reads an atomic counter.
        let calls_before = unsafe { dingo_op_counter_calls() };
        Ok(OpCounter { handle, calls_before })
    }

    /// The calls since `start`.
    pub fn calls(&self) -> u64 {
        // SAFETY: reads an atomic counter.
        unsafe { dingo_op_counter_calls() - self.calls_before }
    }
}

impl Drop for OpCounter {
    fn drop(&mut self) {
        // SAFETY: `handle` came from `dingo_op_counter_start` and is used once.
        let _ = unsafe { check(dingo_op_counter_stop(self.handle)) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tch::{Device, Kind, Tensor};

    #[test]
    fn counts_while_it_lives() {
        let x = Tensor::ones([4], (Kind::Float, Device::Cpu));
        let counter = OpCounter::start().unwrap();
        for _ in 0..100 {
            let _ = &x + &x;
        }
        // Other tests run beside this one, so only the lower bound is sharp.
        assert!(counter.calls() >= 100, "{}", counter.calls());
    }
}
