//! How batches get from the host, where they are made, to where the network is.

use super::{Batch, DataError};
use crate::torch_ext::cuda::{copy_to_device, current_stream, used_on, Event, Stream};
use crate::torch_ext::TorchExtError;
use tch::{Device, Tensor};

/// The way to a device. That to a GPU is a stream of its own: copies run beside the computation, from pinned memory.
pub(super) struct BatchWay {
    /// None on the host. What CUDA said instead is told with the first batch.
    copies: Option<Result<Stream, String>>,
}

impl BatchWay {
    pub fn to(device: Device) -> BatchWay {
        let copies = match device {
            Device::Cuda(number) => Some(Stream::new(number).map_err(|error| error.to_string())),
            _ => None,
        };
        BatchWay { copies }
    }

    /// Starts a batch on its way. Any thread may call this.
    pub fn send(&self, batch: Batch) -> Result<ArrivingBatch, DataError> {
        let Some(copies) = &self.copies else {
            return Ok(ArrivingBatch { batch, copied: None });
        };
        let stream = *copies.as_ref().map_err(|error| DataError::Compute(error.clone()))?;
        let copy = |tensor: &Tensor| copy_to_device(tensor, stream).map_err(failed);
        let theta = copy(&batch.theta)?;
        let context = batch.context.iter().map(copy).collect::<Result<_, _>>()?;
        let mut copied = Event::new(false).map_err(failed)?;
        copied.record(stream).map_err(failed)?;
        Ok(ArrivingBatch {
            batch: Batch {
                theta,
                context,
                ..batch
            },
            copied: Some(copied),
        })
    }
}

fn failed(error: TorchExtError) -> DataError {
    DataError::Compute(error.to_string())
}

/// A batch whose copies may still be under way.
pub(super) struct ArrivingBatch {
    batch: Batch,
    /// Past when they are made.
    copied: Option<Event>,
}

impl ArrivingBatch {
    /// The batch, for use on the calling thread: what is computed there from here on waits for the copies, the host does not.
    pub fn arrive(self) -> Result<Batch, DataError> {
        let ArrivingBatch { batch, copied } = self;
        if let (Some(copied), Device::Cuda(number)) = (copied, batch.theta.device()) {
            let computation = current_stream(number).map_err(failed)?;
            copied.delay(computation).map_err(failed)?;
            for tensor in batch.context.iter().chain([&batch.theta]) {
                // Their memory belongs to the stream of the copies, which would use it again too soon.
                used_on(tensor, computation).map_err(failed)?;
            }
        }
        Ok(batch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn on_the_host_a_batch_stays_where_it_is() {
        let theta = Tensor::from_slice(&[1.0f32, 2.0]);
        let memory = theta.data_ptr();
        let batch = Batch {
            theta,
            context: vec![Tensor::from_slice(&[3.0f32])],
            global_count: 4,
            first_sample: 2,
        };
        let arrived = BatchWay::to(Device::Cpu)
            .send(batch)
            .and_then(ArrivingBatch::arrive)
            .unwrap();
        assert_eq!(arrived.theta.data_ptr(), memory);
        assert_eq!(
            (arrived.context.len(), arrived.global_count, arrived.first_sample),
            (1, 4, 2)
        );
    }

    /// Without a GPU the way to one is an error with its reason, not a batch on the host.
    #[test]
    fn a_way_that_is_not_there_is_an_error() {
        if crate::torch_ext::cuda::device_count().is_ok() {
            return;
        }
        let batch = Batch {
            theta: Tensor::from_slice(&[1.0f32]),
            context: Vec::new(),
            global_count: 1,
            first_sample: 0,
        };
        let error = BatchWay::to(Device::Cuda(0)).send(batch).err().unwrap();
        assert!(matches!(error, DataError::Compute(_)), "{error}");
    }
}
