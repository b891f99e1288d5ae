//! Which GPUs this process sees, what they are, and which one it works on.

use super::super::error::{check, TorchExtError};
use super::{DeviceMemory, DeviceProperties, Versions};
use std::ffi::{c_char, CStr};

#[repr(C)]
struct RawProperties {
    name: [c_char; 256],
    uuid: [u8; 16],
    pci: [c_char; 32],
    memory: u64,
    capability: [i32; 2],
}

extern "C" {
    fn dingo_cuda_device_count(count: *mut i32) -> *mut c_char;
    fn dingo_cuda_device(index: i32, device: *mut RawProperties) -> *mut c_char;
    fn dingo_cuda_set_device(index: i32) -> *mut c_char;
    fn dingo_cuda_versions(runtime: *mut i32, driver: *mut i32, cudnn: *mut i64) -> *mut c_char;
    fn dingo_cuda_take_memory(index: i32, allocated: *mut i64, reserved: *mut i64, peak: *mut i64) -> *mut c_char;
}

/// GPUs that this process sees, at least one.
///
/// # Errors
/// Why there is none, in CUDA's words.
pub fn device_count() -> Result<usize, TorchExtError> {
    let mut count = 0;
    // SAFETY: a valid place for the result.
    unsafe { check(dingo_cuda_device_count(&mut count))? };
    Ok(count as usize)
}

/// What a GPU is; does not occupy it.
///
/// # Errors
/// What CUDA says.
pub fn device_properties(index: usize) -> Result<DeviceProperties, TorchExtError> {
    let mut raw = RawProperties {
        name: [0; 256],
        uuid: [0; 16],
        pci: [0; 32],
        memory: 0,
        capability: [0; 2],
    };
    // SAFETY: a valid place for the result, of C's layout.
    unsafe { check(dingo_cuda_device(index as i32, &mut raw))? };
    // SAFETY: both end in a null, from CUDA and from snprintf.
    let text = |bytes: &[c_char]| unsafe { CStr::from_ptr(bytes.as_ptr()).to_string_lossy().into_owned() };
    Ok(DeviceProperties {
        name: text(&raw.name),
        uuid: raw.uuid,
        pci: text(&raw.pci),
        memory: raw.memory,
        capability: raw.capability,
    })
}

/// The GPU of the calling thread.
///
/// # Errors
/// What CUDA says: another process has the GPU for itself, for example.
pub fn set_device(index: usize) -> Result<(), TorchExtError> {
    // SAFETY: a call with a number.
    unsafe { check(dingo_cuda_set_device(index as i32)) }
}

/// The libraries in use.
///
/// # Errors
/// What CUDA says.
pub fn versions() -> Result<Versions, TorchExtError> {
    let (mut runtime, mut driver, mut cudnn) = (0, 0, 0);
    // SAFETY: valid places for the results.
    unsafe { check(dingo_cuda_versions(&mut runtime, &mut driver, &mut cudnn))? };
    Ok(Versions { runtime, driver, cudnn })
}

/// Of a GPU that tensors have been put on; the peak begins anew.
///
/// # Errors
/// What CUDA says.
pub fn take_memory(index: usize) -> Result<DeviceMemory, TorchExtError> {
    let (mut allocated, mut reserved, mut peak) = (0, 0, 0);
    // SAFETY: valid places for the results.
    unsafe {
        check(dingo_cuda_take_memory(
            index as i32,
            &mut allocated,
            &mut reserved,
            &mut peak,
        ))?
    };
    let [allocated, reserved, peak] = [allocated, reserved, peak].map(|bytes| bytes as u64);
    Ok(DeviceMemory {
        allocated,
        reserved,
        peak,
    })
}
