//! NCCL: collectives between GPUs.

use super::super::error::{check, TorchExtError};
use super::{Stream, UniqueId};
use std::ffi::{c_char, c_void};
use tch::Tensor;
use torch_sys::C_tensor;

extern "C" {
    fn dingo_nccl_version(version: *mut i32) -> *mut c_char;
    fn dingo_nccl_unique_id(id: *mut u8) -> *mut c_char;
    fn dingo_nccl_init(id: *const u8, ranks: i32, rank: i32, device: i32, out: *mut *mut c_void) -> *mut c_char;
    fn dingo_nccl_all_reduce_sum(communicator: *mut c_void, tensor: *const C_tensor, on: Stream) -> *mut c_char;
    fn dingo_nccl_all_gather(
        communicator: *mut c_void,
        local: *const C_tensor,
        gathered: *const C_tensor,
        on: Stream,
    ) -> *mut c_char;
    fn dingo_nccl_broadcast(communicator: *mut c_void, tensor: *const C_tensor, root: i32, on: Stream) -> *mut c_char;
    fn dingo_nccl_health(communicator: *mut c_void) -> *mut c_char;
    fn dingo_nccl_abort(communicator: *mut c_void) -> *mut c_char;
    fn dingo_nccl_destroy(communicator: *mut c_void) -> *mut c_char;
}

/// NCCL's version: major, minor, patch.
///
/// # Errors
/// What libtorch says.
pub fn nccl_version() -> Result<[i32; 3], TorchExtError> {
    let mut version = [0; 3];
    // SAFETY: a place for three numbers.
    unsafe { check(dingo_nccl_version(version.as_mut_ptr()))? };
    Ok(version)
}

/// Draws what the ranks of a communicator meet by. Needs no GPU, but a network interface that NCCL finds.
///
/// # Errors
/// What NCCL says.
pub fn unique_id() -> Result<UniqueId, TorchExtError> {
    let mut id = [0; 128];
    // SAFETY: a place for NCCL_UNIQUE_ID_BYTES bytes.
    unsafe { check(dingo_nccl_unique_id(id.as_mut_ptr()))? };
    Ok(id)
}

/// A communicator of one GPU for each rank. Everything it is told goes onto a stream, and the host waits for nothing; all
/// ranks tell theirs the same, in the same order. It is left alone when dropped: taking it down waits for the other ranks.
#[derive(Debug)]
pub struct NcclCommunicator(*mut c_void);

// SAFETY: NCCL lets any thread ask for errors and abort at any time; collectives come from one thread at a time, in the order
// that all ranks share (the main thread, or libtorch's backward thread while the main one waits for it).
unsafe impl Send for NcclCommunicator {}
unsafe impl Sync for NcclCommunicator {}

impl NcclCommunicator {
    /// Waits until all ranks have come here with the same id.
    ///
    /// # Errors
    /// What NCCL says: two ranks on one GPU, for example, or no way between nodes.
    pub fn new(id: &UniqueId, ranks: usize, rank: usize, device: usize) -> Result<NcclCommunicator, TorchExtError> {
        let mut communicator = std::ptr::null_mut();
        let (ranks, rank, device) = (ranks as i32, rank as i32, device as i32);
        // SAFETY: 128 bytes, and a valid place for the result.
        unsafe { check(dingo_nccl_init(id.as_ptr(), ranks, rank, device, &mut communicator))? };
        Ok(NcclCommunicator(communicator))
    }

    /// Replaces a contiguous tensor by its sum over ranks, the same bits on all.
    ///
    /// # Errors
    /// Another kind than Float, Double or Int64, or what NCCL says.
    pub fn all_reduce_sum(&self, tensor: &Tensor, on: Stream) -> Result<(), TorchExtError> {
        // SAFETY: communicator and tensor are alive; whoever calls keeps the tensor until the stream has done this.
        unsafe { check(dingo_nccl_all_reduce_sum(self.0, tensor.as_ptr(), on)) }
    }

    /// Fills `gathered` with the `local` tensors of all ranks, in the order of ranks.
    ///
    /// # Errors
    /// As `all_reduce_sum`, or sizes that do not fit.
    pub fn all_gather(&self, local: &Tensor, gathered: &Tensor, ranks: usize, on: Stream) -> Result<(), TorchExtError> {
        if gathered.numel() != local.numel() * ranks {
            let (has, needs) = (gathered.numel(), local.numel() * ranks);
            return Err(TorchExtError(format!("gathering {needs} numbers into {has}")));
        }
        // SAFETY: as in `all_reduce_sum`; there is room for all.
        unsafe { check(dingo_nccl_all_gather(self.0, local.as_ptr(), gathered.as_ptr(), on)) }
    }

    /// Replaces a contiguous tensor by that of rank `root`.
    ///
    /// # Errors
    /// As `all_reduce_sum`.
    pub fn broadcast(&self, tensor: &Tensor, root: usize, on: Stream) -> Result<(), TorchExtError> {
        // SAFETY: as in `all_reduce_sum`.
        unsafe { check(dingo_nccl_broadcast(self.0, tensor.as_ptr(), root as i32, on)) }
    }

    /// Whether all is well, from any thread.
    ///
    /// # Errors
    /// What has gone wrong since.
    pub fn health(&self) -> Result<(), TorchExtError> {
        // SAFETY: the communicator is alive.
        unsafe { check(dingo_nccl_health(self.0)) }
    }

    /// Takes back what is under way, without the other ranks; may take its time. Nothing may be asked of the communicator
    /// after this, by anyone: it is for a process that is about to end.
    ///
    /// # Errors
    /// What NCCL says.
    pub fn abort(&self) -> Result<(), TorchExtError> {
        // SAFETY: the communicator is alive; that nobody uses it later is what the caller sees to.
        unsafe { check(dingo_nccl_abort(self.0)) }
    }

    /// Takes it down, with all other ranks.
    ///
    /// # Errors
    /// What NCCL says.
    pub fn destroy(self) -> Result<(), TorchExtError> {
        // SAFETY: the communicator is alive, and gone with `self`.
        unsafe { check(dingo_nccl_destroy(self.0)) }
    }
}
