//! GPUs: which there are, streams and events on them, and NCCL.
//!
//! Where the program was built without CUDA the types here have no values and what makes them says so, so nothing above needs
//! to know how it was built.

#[cfg(not(dingo_cuda))]
mod absent;
#[cfg(dingo_cuda)]
mod device;
mod fetched;
#[cfg(dingo_cuda)]
mod nccl;
#[cfg(dingo_cuda)]
mod stream;

#[cfg(not(dingo_cuda))]
pub use absent::*;
#[cfg(dingo_cuda)]
pub use device::{device_count, device_properties, set_device, take_memory, versions};
pub use fetched::Fetched;
#[cfg(dingo_cuda)]
pub use nccl::{nccl_version, unique_id, NcclCommunicator};
#[cfg(dingo_cuda)]
pub use stream::{copy_to_device, current_stream, fetch, used_on, Event, Stream};

use super::error::TorchExtError;
use tch::{Device, Tensor};

/// What a rank draws for all to meet by (`ncclUniqueId`).
pub type UniqueId = [u8; 128];

/// What a GPU is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceProperties {
    /// As NVIDIA calls the model.
    pub name: String,
    /// Its own, whatever number a process knows it by; a part of a GPU (MIG) has one too.
    pub uuid: [u8; 16],
    /// Where it is plugged in, as nvidia-smi writes it: `00000000:17:00.0`.
    pub pci: String,
    /// Bytes.
    pub memory: u64,
    /// Compute capability, such as 9 and 0.
    pub capability: [i32; 2],
}

/// Versions of the libraries in use; CUDA's as it counts them, 13000 for 13.0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Versions {
    pub runtime: i32,
    /// The newest CUDA that the driver knows.
    pub driver: i32,
    /// As cuDNN counts, 91900 for 9.19.0; 0 without.
    pub cudnn: i64,
}

/// Bytes of libtorch's allocator on a GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceMemory {
    pub allocated: u64,
    /// Taken from the GPU, in use or not.
    pub reserved: u64,
    /// The most that was allocated since this was last asked.
    pub peak: u64,
}

/// The tensor where `device` is, without a wait of the host for what it has been told: itself, or a copy on the stream that the
/// calling thread computes on.
///
/// # Errors
/// What libtorch says.
pub fn put(tensor: &Tensor, device: Device) -> Result<Tensor, TorchExtError> {
    match (tensor.device(), device) {
        (Device::Cpu, Device::Cuda(number)) => copy_to_device(tensor, current_stream(number)?),
        _ => tensor
            .f_to_device(device)
            .map_err(|error| TorchExtError(error.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Built with CUDA or not, with a GPU or not: a reason, or GPUs that can be described.
    #[test]
    fn a_machine_has_gpus_or_a_reason_why_not() {
        match device_count() {
            Ok(count) => {
                assert!(count > 0);
                let all: Vec<_> = (0..count).map(|index| device_properties(index).unwrap()).collect();
                assert!(all.iter().all(|device| device.memory > 0 && !device.name.is_empty()));
            }
            Err(why) => assert!(why.to_string().len() > "libtorch: ".len(), "{why}"),
        }
    }

    /// Needs no GPU, so that the way the ranks meet can be tested anywhere.
    #[cfg(dingo_cuda)]
    #[test]
    fn unique_ids_are_unique() {
        let (one, other) = (unique_id().unwrap(), unique_id().unwrap());
        assert_ne!(one, other);
        assert_ne!(one, [0; 128]);
        assert_eq!(nccl_version().unwrap()[0], 2);
    }

    #[cfg(not(dingo_cuda))]
    #[test]
    fn without_cuda_everything_says_so() {
        assert!(device_count().unwrap_err().to_string().contains("built without CUDA"));
        assert!(unique_id().unwrap_err().to_string().contains("built without CUDA"));
    }
}
