//! `torch.nn.Dropout` (Srivastava et al. 2014, JMLR 15:1929).

use super::Mode;
use tch::Tensor;

/// In training sets each value to zero with probability `probability` and scales the others up to keep the mean.
#[derive(Debug, Clone, Copy)]
pub struct Dropout {
    probability: f64,
}

impl Dropout {
    pub fn new(probability: f64) -> Self {
        Dropout { probability }
    }

    /// Any shape.
    pub fn forward(&self, x: &Tensor, mode: Mode) -> Tensor {
        if !mode.is_training() || self.probability == 0.0 {
            return x.shallow_clone();
        }
        // The only random draws of a training step's network part, from libtorch's global generator of the device. To
        // resume exactly, its state must be saved and restored (or a counter-based mask drawn here instead).
        x.dropout(self.probability, true)
    }
}
