//! How exact matrix products of single precision are (`torch.set_float32_matmul_precision`).

use super::error::{check, TorchExtError};
use std::ffi::{c_char, c_int};

/// PyTorch's names, from the most exact.
const NAMES: [&str; 3] = ["highest", "high", "medium"];

extern "C" {
    fn dingo_set_float32_matmul_precision(precision: c_int) -> *mut c_char;
    fn dingo_float32_matmul_precision(precision: *mut c_int) -> *mut c_char;
}

/// For all of the process: `highest` is PyTorch's default, `high` allows TensorFloat-32, `medium` bfloat16 too.
///
/// # Errors
/// Another name.
pub fn set_float32_matmul_precision(name: &str) -> Result<(), TorchExtError> {
    let position = NAMES.iter().position(|&known| known == name);
    let Some(precision) = position else {
        return Err(TorchExtError(format!(
            "float32_matmul_precision {name:?}; allowed are {}",
            NAMES.join(", ")
        )));
    };
    // SAFETY: a number from 0 to 2.
    unsafe { check(dingo_set_float32_matmul_precision(precision as c_int)) }
}

/// The name of what is in force.
///
/// # Errors
/// What libtorch says when it was set by other means in a way that has no name.
pub fn float32_matmul_precision() -> Result<&'static str, TorchExtError> {
    let mut precision = 0;
    // SAFETY: a valid place for the result.
    unsafe { check(dingo_float32_matmul_precision(&mut precision))? };
    let name = usize::try_from(precision).ok().and_then(|index| NAMES.get(index));
    name.copied()
        .ok_or_else(|| TorchExtError(format!("float32 matmul precision number {precision} is not known")))
}
