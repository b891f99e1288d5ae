//! Numbers on their way from a device to the host.

use super::super::error::TorchExtError;
use super::{current_stream, fetch, Event};
use tch::{Device, Tensor};

/// Copies of tensors in host memory, to be read some time later. From the host itself they are made at once.
#[derive(Debug)]
pub struct Fetched {
    copies: Vec<Tensor>,
    /// Past when the copies are made.
    made: Option<Event>,
}

impl Fetched {
    /// Starts the copies; the tensors may be changed afterwards, by what the calling thread computes.
    ///
    /// # Errors
    /// What libtorch says.
    pub fn start(tensors: &[&Tensor]) -> Result<Fetched, TorchExtError> {
        let device = tensors.first().map_or(Device::Cpu, |tensor| tensor.device());
        let Device::Cuda(number) = device else {
            return Ok(Fetched {
                copies: tensors.iter().map(|tensor| tensor.detach().copy()).collect(),
                made: None,
            });
        };
        let copies = tensors.iter().map(|tensor| fetch(tensor)).collect::<Result<_, _>>()?;
        let mut made = Event::new(false)?;
        made.record(current_stream(number)?)?;
        Ok(Fetched {
            copies,
            made: Some(made),
        })
    }

    /// The copies, once they are made.
    ///
    /// # Errors
    /// What CUDA says of what was computed before them.
    pub fn wait(self) -> Result<Vec<Tensor>, TorchExtError> {
        if let Some(made) = &self.made {
            made.synchronize()?;
        }
        Ok(self.copies)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_those_of_the_moment() {
        let mut tensor = Tensor::from_slice(&[1.0f32, 2.0]);
        let fetched = Fetched::start(&[&tensor]).unwrap();
        let _ = tensor.fill_(7.0);
        assert_eq!(fetched.wait().unwrap(), [Tensor::from_slice(&[1.0f32, 2.0])]);
    }
}
