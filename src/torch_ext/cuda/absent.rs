//! Without CUDA: streams, events and communicators that cannot exist, so that no call on one can be made.

use super::super::error::TorchExtError;
use super::{DeviceMemory, DeviceProperties, UniqueId, Versions};
use tch::Tensor;

type Result<T> = std::result::Result<T, TorchExtError>;

fn without<T>() -> Result<T> {
    Err(TorchExtError(format!(
        "this program was built without CUDA: {}",
        env!("DINGO_WITHOUT_CUDA")
    )))
}

pub fn device_count() -> Result<usize> {
    without()
}

pub fn device_properties(_index: usize) -> Result<DeviceProperties> {
    without()
}

pub fn set_device(_index: usize) -> Result<()> {
    without()
}

pub fn versions() -> Result<Versions> {
    without()
}

pub fn take_memory(_index: usize) -> Result<DeviceMemory> {
    without()
}

pub fn nccl_version() -> Result<[i32; 3]> {
    without()
}

pub fn unique_id() -> Result<UniqueId> {
    without()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {}

impl Stream {
    pub fn new(_device: usize) -> Result<Stream> {
        without()
    }
}

pub fn current_stream(_device: usize) -> Result<Stream> {
    without()
}

#[derive(Debug)]
pub enum Event {}

impl Event {
    pub fn new(_timed: bool) -> Result<Event> {
        without()
    }

    pub fn record(&mut self, _on: Stream) -> Result<()> {
        match *self {}
    }

    pub fn delay(&self, _stream: Stream) -> Result<()> {
        match *self {}
    }

    pub fn is_past(&self) -> Result<bool> {
        match *self {}
    }

    pub fn synchronize(&self) -> Result<()> {
        match *self {}
    }

    pub fn milliseconds_until(&self, _later: &Event) -> Result<f64> {
        match *self {}
    }
}

pub fn copy_to_device(_host: &Tensor, on: Stream) -> Result<Tensor> {
    match on {}
}

pub fn used_on(_tensor: &Tensor, stream: Stream) -> Result<()> {
    match stream {}
}

pub fn fetch(_tensor: &Tensor) -> Result<Tensor> {
    without()
}

#[derive(Debug)]
pub enum NcclCommunicator {}

impl NcclCommunicator {
    pub fn new(_id: &UniqueId, _ranks: usize, _rank: usize, _device: usize) -> Result<NcclCommunicator> {
        without()
    }

    pub fn all_reduce_sum(&self, _tensor: &Tensor, _on: Stream) -> Result<()> {
        match *self {}
    }

    pub fn all_gather(&self, _local: &Tensor, _gathered: &Tensor, _ranks: usize, _on: Stream) -> Result<()> {
        match *self {}
    }

    pub fn broadcast(&self, _tensor: &Tensor, _root: usize, _on: Stream) -> Result<()> {
        match *self {}
    }

    pub fn health(&self) -> Result<()> {
        match *self {}
    }

    pub fn abort(&self) -> Result<()> {
        match *self {}
    }

    pub fn destroy(self) -> Result<()> {
        match self {}
    }
}
