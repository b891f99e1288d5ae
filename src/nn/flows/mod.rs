//! Normalizing flows (Papamakarios et al. 2021, arXiv:1912.02762), as nflows builds them.

mod composite;
mod coupling;
mod flow;
mod lu_linear;
mod neural_spline_flow;
mod permutation;
mod rational_quadratic_cdf;
mod rational_quadratic_spline;
#[cfg(test)]
mod spline_speed;
#[cfg(test)]
mod spline_tests;
mod standard_normal;
#[cfg(test)]
mod tests;
mod wrapper;

pub use composite::CompositeTransform;
pub use coupling::{CouplingMask, PiecewiseRationalQuadraticCoupling};
pub use flow::Flow;
pub use lu_linear::LuLinear;
pub use neural_spline_flow::neural_spline_flow;
pub use permutation::RandomPermutation;
pub use rational_quadratic_cdf::PiecewiseRationalQuadraticCdf;
pub use rational_quadratic_spline::{RationalQuadraticSpline, SplineParameters};
pub use standard_normal::StandardNormal;
pub use wrapper::FlowWrapper;

use super::{Mode, NnError};
use crate::torch_ext::Autocast;
use tch::Tensor;

/// An invertible map of `[batch, features]`, possibly conditioned on a context `[batch, context_features]`.
///
/// Both directions give the image, `[batch, features]`, and log |det J| of the direction taken: `[batch]`, or `[]` where it is
/// the same whatever the inputs are; none where it is 0.
pub trait Transform {
    fn forward(&self, inputs: &Tensor, context: Option<&Tensor>, mode: Mode) -> Result<Transformed, NnError>;

    fn inverse(&self, inputs: &Tensor, context: Option<&Tensor>, mode: Mode) -> Result<Transformed, NnError>;
}

/// An image and log |det J|.
pub type Transformed = (Tensor, Option<Tensor>);

/// While the guard lives, mixed precision is off: what a flow computes beside its conditioner networks is a density, in which
/// three digits are not enough, and costs little.
fn single_precision(inputs: &Tensor) -> Result<Autocast, NnError> {
    Ok(Autocast::off(inputs.device())?)
}
