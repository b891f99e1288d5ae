//! The activation functions that Dingo's settings know, with PyTorch's default constants.

use crate::settings::Activation;
use crate::torch_ext;
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

/// The name that fused kernels have for it; for none too.
pub(super) fn kernel(activation: Option<Activation>) -> torch_ext::Activation {
    match activation {
        None => torch_ext::Activation::None,
        Some(Activation::Elu) => torch_ext::Activation::Elu,
        Some(Activation::Relu) => torch_ext::Activation::Relu,
        Some(Activation::LeakyRelu) => torch_ext::Activation::LeakyRelu,
        Some(Activation::Gelu) => torch_ext::Activation::Gelu,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_those_of_pytorch() {
        let x = Tensor::from_slice(&[-1.5f32, -0.25, 0.75]);
        for (activation, expected) in [
            (Activation::Elu, [-0.77686983, -0.22119921, 0.75]),
            (Activation::Relu, [0.0, 0.0, 0.75]),
            (Activation::LeakyRelu, [-0.015, -0.0025, 0.75]),
            (Activation::Gelu, [-0.10021086, -0.10032342, 0.5800295]),
        ] {
            let ours = Vec::<f32>::try_from(activate(activation, &x)).unwrap();
            assert!(
                ours.iter()
                    .zip(expected)
                    .all(|(a, b): (&f32, f32)| (a - b).abs() < 1e-6),
                "{activation:?}: {ours:?}"
            );
        }
    }
}
