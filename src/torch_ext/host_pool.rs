//! Tensors in host memory that is used again and again: for batches, which are so large that the system would otherwise
//! hand out and clear new pages for each of them.

use super::error::{check, TorchExtError};
use std::ffi::c_char;
use std::ptr::null_mut;
use tch::Tensor;
use torch_sys::C_tensor;

#[repr(C)]
struct RawPool {
    _private: [u8; 0],
}

extern "C" {
    fn dingo_host_pool_new(pool: *mut *mut RawPool) -> *mut c_char;
    fn dingo_host_pool_delete(pool: *mut RawPool);
    fn dingo_host_pool_empty(
        pool: *const RawPool,
        sizes: *const i64,
        dimensions: usize,
        tensor: *mut *mut C_tensor,
    ) -> *mut c_char;
}

/// Lends memory to tensors; may be used from many threads at once. A few blocks are kept for later, all others belong to
/// living tensors.
#[derive(Debug)]
pub struct HostPool {
    pool: *mut RawPool,
}

// SAFETY: the C++ side guards its list of blocks by a lock.
unsafe impl Send for HostPool {}
// SAFETY: as above.
unsafe impl Sync for HostPool {}

impl HostPool {
    /// An empty pool.
    ///
    /// # Errors
    /// No memory.
    pub fn new() -> Result<HostPool, TorchExtError> {
        let mut pool = null_mut();
        // SAFETY: `pool` is a valid place for the handle.
        unsafe { check(dingo_host_pool_new(&mut pool))? };
        Ok(HostPool { pool })
    }

    /// A contiguous float32 tensor of this shape, with whatever numbers its memory holds. The memory returns to the pool
    /// when the last handle on it is gone, also after the pool itself.
    ///
    /// # Errors
    /// No memory.
    pub fn empty(&self, shape: &[i64]) -> Result<Tensor, TorchExtError> {
        let mut tensor = null_mut();
        // SAFETY: a living pool, a shape of that length, and a valid place for the tensor, which is ours from then on.
        unsafe {
            check(dingo_host_pool_empty(
                self.pool,
                shape.as_ptr(),
                shape.len(),
                &mut tensor,
            ))?;
            Ok(Tensor::from_ptr(tensor))
        }
    }
}

impl Drop for HostPool {
    fn drop(&mut self) {
        // SAFETY: the handle came from `dingo_host_pool_new` and is used once.
        unsafe { dingo_host_pool_delete(self.pool) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_comes_back_and_is_lent_again() {
        let pool = HostPool::new().unwrap();
        let first = pool.empty(&[3, 1000]).unwrap();
        assert_eq!((first.size(), first.kind()), (vec![3, 1000], tch::Kind::Float));
        let place = first.data_ptr();
        let view = first.narrow(0, 1, 1);
        drop(first);
        let second = pool.empty(&[3, 1000]).unwrap();
        assert_ne!(second.data_ptr(), place, "a view still lives there");
        drop(view);
        assert_eq!(pool.empty(&[2, 1000]).unwrap().data_ptr(), place);
        drop(pool);
        assert_eq!(second.fill(2.0).double_value(&[2, 999]), 2.0);
    }

    #[test]
    fn a_small_tensor_does_not_take_a_large_block() {
        let pool = HostPool::new().unwrap();
        let large = pool.empty(&[5_000_000]).unwrap();
        let place = large.data_ptr();
        drop(large);
        assert_ne!(pool.empty(&[10]).unwrap().data_ptr(), place);
        assert_eq!(pool.empty(&[4_000_000]).unwrap().data_ptr(), place);
    }
}
