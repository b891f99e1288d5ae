//! The activation functions that Dingo's settings know, with PyTorch's default constants.

use crate::settings::Activation;
use tch::Tensor;

/// Elementwise; any shape.
pub fn activate(activation: Activation, x: &Tensor) -> Tensor {
    match activation {
        Activation::Elu => x.elu(),
        Activation::Relu => x.relu(),
        Activation::LeakyRelu => x.leaky_relu(),
        // "none": with the error function itself, not its tanh approximation.
        Activation::Gelu => x.gelu("none"),
    }
}
