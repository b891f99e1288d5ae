//! Collectives on GPUs: how the ranks meet, and what is told to NCCL.

use super::arrivals::Arrivals;
use super::collectives::{Collectives, HostCollectives};
use super::communicator::Traffic;
use super::error::{Result, SpmdError};
use super::world::World;
use crate::torch_ext::cuda::{current_stream, unique_id, NcclCommunicator, Stream, UniqueId};
use crate::torch_ext::TorchExtError;
use std::sync::{Arc, Mutex};
use tch::{Device, Tensor};

impl World {
    /// What all ranks of a new NCCL communicator meet by: drawn on rank 0, brought to all by MPI. Needs no GPU.
    ///
    /// # Errors
    /// What NCCL says on rank 0, the same error on all ranks; or what MPI says.
    pub fn share_unique_id(&self) -> anyhow::Result<UniqueId> {
        let drawn = self.is_root().then(unique_id).transpose();
        let drawn = self.agree(drawn.map_err(Into::into))?;
        let mut id = drawn.unwrap_or([0; 128]);
        self.broadcast(&mut id, 0)?;
        Ok(id)
    }
}

/// A communicator of NCCL, with what is known of the collectives that it was told.
pub(super) struct DeviceLink {
    nccl: NcclCommunicator,
    pub rank: usize,
    pub size: usize,
    pub device: usize,
    pub purpose: &'static str,
    /// Those that this rank has begun to tell NCCL; complete when the GPU has done them.
    pub arrivals: Arc<Arrivals>,
    traffic: Arc<Traffic>,
    last: Mutex<Option<Told>>,
}

/// The last collective that NCCL was told: its number, and the stream that it is on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Told {
    pub number: u64,
    pub on: Stream,
}

impl DeviceLink {
    /// Waits until all ranks have come here. `arrivals` counts this as the first collective.
    ///
    /// # Errors
    /// What MPI or NCCL says.
    pub fn connect(
        world: &World,
        device: usize,
        purpose: &'static str,
        arrivals: Arc<Arrivals>,
    ) -> anyhow::Result<DeviceLink> {
        let id = world.share_unique_id()?;
        let number = arrivals.begin();
        let nccl = NcclCommunicator::new(&id, world.size, world.rank, device);
        arrivals.complete();
        let nccl = nccl.map_err(|error| SpmdError::Device { purpose, number, error })?;
        Ok(DeviceLink {
            nccl,
            rank: world.rank,
            size: world.size,
            device,
            purpose,
            arrivals,
            traffic: world.traffic().clone(),
            last: Mutex::new(None),
        })
    }

    /// Puts a collective of this tensor onto a stream.
    fn tell(
        &self,
        tensor: &Tensor,
        on: Stream,
        call: impl FnOnce(&NcclCommunicator) -> std::result::Result<(), TorchExtError>,
    ) -> Result<()> {
        self.traffic.add(tensor.numel() * tensor.kind().elt_size_in_bytes());
        let number = self.arrivals.begin();
        call(&self.nccl).map_err(|error| SpmdError::Device {
            purpose: self.purpose,
            number,
            error,
        })?;
        if let Ok(mut last) = self.last.lock() {
            *last = Some(Told { number, on });
        }
        Ok(())
    }

    /// The last collective that is on a stream.
    pub fn last_told(&self) -> Option<Told> {
        self.last.lock().ok().and_then(|last| *last)
    }

    pub fn all_reduce_sum(&self, tensor: &Tensor, on: Stream) -> Result<()> {
        self.tell(tensor, on, |nccl| nccl.all_reduce_sum(tensor, on))
    }

    pub fn health(&self) -> std::result::Result<(), TorchExtError> {
        self.nccl.health()
    }

    /// See [`NcclCommunicator::abort`].
    pub fn abort(&self) -> std::result::Result<(), TorchExtError> {
        self.nccl.abort()
    }

    /// Takes the communicator down, with all other ranks.
    pub fn disconnect(self) -> Result<()> {
        Ok(self.nccl.destroy()?)
    }
}

/// Collectives between GPUs, on the stream that the calling thread computes on: the host does not wait for them.
#[derive(Clone)]
pub struct NcclCollectives {
    link: Arc<DeviceLink>,
    /// For what concerns the ranks' processes rather than their tensors.
    host: HostCollectives,
}

impl NcclCollectives {
    pub(super) fn new(link: Arc<DeviceLink>, host: HostCollectives) -> NcclCollectives {
        NcclCollectives { link, host }
    }

    fn stream(&self) -> Result<Stream> {
        Ok(current_stream(self.link.device)?)
    }
}

impl Collectives for NcclCollectives {
    fn rank(&self) -> usize {
        self.link.rank
    }

    fn size(&self) -> usize {
        self.link.size
    }

    fn all_reduce_sum(&self, tensor: &Tensor) -> Result<()> {
        self.link.all_reduce_sum(tensor, self.stream()?)
    }

    fn all_gather(&self, local: &Tensor) -> Result<Tensor> {
        let (local, on) = (local.f_contiguous()?, self.stream()?);
        let shape = [self.size() as i64, local.numel() as i64];
        let gathered = Tensor::f_empty(shape, (local.kind(), Device::Cuda(self.link.device)))?;
        self.link
            .tell(&local, on, |nccl| nccl.all_gather(&local, &gathered, self.size(), on))?;
        Ok(gathered)
    }

    fn broadcast(&self, tensor: &Tensor, root: usize) -> Result<()> {
        let on = self.stream()?;
        self.link.tell(tensor, on, |nccl| nccl.broadcast(tensor, root, on))
    }

    fn barrier(&self) -> Result<()> {
        self.host.barrier()
    }
}
