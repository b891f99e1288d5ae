//! Collectives on tensors: one face for host memory (MPI) and GPUs (NCCL).

use super::communicator::{Combine, Communicator};
use super::error::{Result, SpmdError};
use super::nccl::NcclCollectives;
use super::number::Element;
use crate::torch_ext::RankStatistics;
use std::ffi::c_void;
use std::sync::Arc;
use tch::{Device, Tensor};

/// What ranks do with tensors. Every call is collective: all ranks make the same calls in the same order, with tensors
/// of the same shape and kind.
pub trait Collectives: Send + Sync {
    /// This rank.
    fn rank(&self) -> usize;

    /// The number of ranks.
    fn size(&self) -> usize;

    /// Replaces a contiguous tensor by its sum over ranks, the same bits on all.
    fn all_reduce_sum(&self, tensor: &Tensor) -> Result<()>;

    /// From `local` of shape `[k]` on each rank to `[ranks, k]` on all.
    fn all_gather(&self, local: &Tensor) -> Result<Tensor>;

    /// Replaces a contiguous tensor by that of rank `root`.
    fn broadcast(&self, tensor: &Tensor, root: usize) -> Result<()>;

    /// Waits until all ranks have come here.
    fn barrier(&self) -> Result<()>;
}

/// Collectives where the tensors are, so that who uses them need not know.
#[derive(Clone)]
pub enum TensorCollectives {
    Host(HostCollectives),
    Device(NcclCollectives),
}

impl TensorCollectives {
    fn inner(&self) -> &dyn Collectives {
        match self {
            TensorCollectives::Host(host) => host,
            TensorCollectives::Device(device) => device,
        }
    }
}

impl Collectives for TensorCollectives {
    fn rank(&self) -> usize {
        self.inner().rank()
    }

    fn size(&self) -> usize {
        self.inner().size()
    }

    fn all_reduce_sum(&self, tensor: &Tensor) -> Result<()> {
        self.inner().all_reduce_sum(tensor)
    }

    fn all_gather(&self, local: &Tensor) -> Result<Tensor> {
        self.inner().all_gather(local)
    }

    fn broadcast(&self, tensor: &Tensor, root: usize) -> Result<()> {
        self.inner().broadcast(tensor, root)
    }

    fn barrier(&self) -> Result<()> {
        self.inner().barrier()
    }
}

/// Collectives in host memory through MPI; in a world of one they do nothing.
#[derive(Clone)]
pub struct HostCollectives {
    communicator: Option<Arc<Communicator>>,
}

impl HostCollectives {
    pub(super) fn new(communicator: Option<Arc<Communicator>>) -> HostCollectives {
        HostCollectives { communicator }
    }
}

/// The memory of a contiguous host tensor: where it begins, how many elements, of what kind.
pub(super) fn host_memory(tensor: &Tensor) -> Result<(*mut c_void, usize, Element)> {
    if tensor.device() != Device::Cpu || !tensor.is_contiguous() {
        let (device, shape) = (tensor.device(), tensor.size());
        let message = format!(
            "collectives in host memory need a contiguous tensor there; this one of shape {shape:?} is on {device:?}"
        );
        return Err(SpmdError::Usage(message));
    }
    let kind = tensor.f_kind()?;
    let element = Element::of_kind(kind).ok_or_else(|| {
        SpmdError::Usage(format!(
            "collectives carry Float, Double and Int64 tensors, not {kind:?}"
        ))
    })?;
    Ok((tensor.data_ptr(), tensor.numel(), element))
}

impl Collectives for HostCollectives {
    fn rank(&self) -> usize {
        self.communicator.as_ref().map_or(0, |communicator| communicator.rank)
    }

    fn size(&self) -> usize {
        self.communicator.as_ref().map_or(1, |communicator| communicator.size)
    }

    fn all_reduce_sum(&self, tensor: &Tensor) -> Result<()> {
        let Some(communicator) = &self.communicator else {
            return Ok(());
        };
        let (data, count, element) = host_memory(tensor)?;
        // SAFETY: the tensor's own memory, alive during the call.
        unsafe { communicator.all_reduce(data, count, element, Combine::Sum) }
    }

    fn all_gather(&self, local: &Tensor) -> Result<Tensor> {
        let local = local.f_contiguous()?;
        let Some(communicator) = &self.communicator else {
            return Ok(local.f_unsqueeze(0)?);
        };
        let (data, count, element) = host_memory(&local)?;
        let gathered = Tensor::f_empty([self.size() as i64, count as i64], (local.kind(), Device::Cpu))?;
        // SAFETY: both are live tensors, the second with room for all ranks.
        unsafe { communicator.all_gather(data, gathered.data_ptr(), count, element)? };
        Ok(gathered)
    }

    fn broadcast(&self, tensor: &Tensor, root: usize) -> Result<()> {
        let Some(communicator) = &self.communicator else {
            return Ok(());
        };
        let (data, count, element) = host_memory(tensor)?;
        // SAFETY: the tensor's own memory, alive during the call.
        unsafe { communicator.broadcast(data, count, element, root) }
    }

    fn barrier(&self) -> Result<()> {
        self.communicator
            .as_ref()
            .map_or(Ok(()), |communicator| communicator.barrier())
    }
}

/// Batch normalization reaches the ranks through the same collectives.
impl<C: Collectives> RankStatistics for C {
    fn all_gather(&self, local: &Tensor) -> std::result::Result<Tensor, String> {
        Collectives::all_gather(self, local).map_err(|error| error.to_string())
    }

    fn all_reduce_sum(&self, values: &Tensor) -> std::result::Result<(), String> {
        Collectives::all_reduce_sum(self, values).map_err(|error| error.to_string())
    }
}
