//! In which precision a stage computes (Dingo's `automatic_mixed_precision`).

use super::GradScaler;
use crate::settings::{AmpDtype, StageSettings};
use crate::torch_ext::{Autocast, TorchExtError};
use tch::{Device, Kind};

/// Single precision, or a short type for the network's layers with a scaler for the loss.
#[derive(Debug)]
pub struct Precision {
    device: Device,
    /// The short type of mixed precision.
    short: Option<Kind>,
    pub scaler: GradScaler,
}

impl Precision {
    /// Where the settings do not name a type, it is PyTorch's for the device: float16 on CUDA, bfloat16 on CPUs. Only float16
    /// needs a scaler: bfloat16 has the range of single precision (Dingo scales there too, by powers of two, which changes
    /// nothing).
    pub fn new(stage: &StageSettings, device: Device) -> Precision {
        let of_device = if device.is_cuda() {
            AmpDtype::Fp16
        } else {
            AmpDtype::Bf16
        };
        let short = stage
            .automatic_mixed_precision
            .then(|| match stage.amp_dtype.unwrap_or(of_device) {
                AmpDtype::Bf16 => Kind::BFloat16,
                AmpDtype::Fp16 => Kind::Half,
            });
        Precision {
            device,
            short,
            scaler: GradScaler::new(short == Some(Kind::Half)),
        }
    }

    /// Forward passes are made while this lives.
    pub fn autocast(&self) -> Result<Option<Autocast>, TorchExtError> {
        self.short.map(|kind| Autocast::on(self.device, kind)).transpose()
    }
}
