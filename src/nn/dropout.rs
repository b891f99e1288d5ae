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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drops_its_share_in_training_alone() {
        let x = Tensor::ones([200, 500], tch::kind::FLOAT_CPU);
        assert_eq!(Dropout::new(0.2).forward(&x, Mode::Eval), x);
        assert_eq!(Dropout::new(0.0).forward(&x, Mode::Train), x);
        let dropped = Dropout::new(0.2).forward(&x, Mode::Train);
        // Binomial(1e5, 0.8): the share has a standard deviation of 1.3e-3.
        let kept = dropped.count_nonzero(None).int64_value(&[]) as f64 / 1e5;
        assert!((kept - 0.8).abs() < 6e-3, "{kept}");
        assert!((dropped.max().double_value(&[]) - 1.25).abs() < 1e-6);
    }
}
