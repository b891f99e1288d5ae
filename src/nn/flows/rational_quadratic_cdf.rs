//! A spline per feature that depends on nothing: nflows' `PiecewiseRationalQuadraticCDF`.

use super::{NnError, RationalQuadraticSpline};
use crate::nn::{Init, Scope};
use crate::torch_ext::Direction;
use tch::Tensor;

/// The unconditional transform of a coupling's identity features (`apply_unconditional_transform`).
pub struct PiecewiseRationalQuadraticCdf {
    spline: RationalQuadraticSpline,
    unnormalized_widths: Tensor,
    unnormalized_heights: Tensor,
    unnormalized_derivatives: Tensor,
}

impl PiecewiseRationalQuadraticCdf {
    pub fn new(scope: &Scope, features: usize, spline: RationalQuadraticSpline) -> Result<Self, NnError> {
        let bins = spline.num_bins();
        let unit = Init::Uniform { low: 0.0, high: 1.0 };
        Ok(PiecewiseRationalQuadraticCdf {
            spline,
            unnormalized_widths: scope.parameter("unnormalized_widths", &[features, bins], unit)?,
            unnormalized_heights: scope.parameter("unnormalized_heights", &[features, bins], unit)?,
            unnormalized_derivatives: scope.parameter("unnormalized_derivatives", &[features, bins - 1], unit)?,
        })
    }

    /// Sends the features at `features`, `[n]`, of `inputs`, `[batch, width]`, through the splines: `[batch, width]`, and
    /// log |det J|, `[batch]`.
    pub fn transform(
        &self,
        direction: Direction,
        inputs: &Tensor,
        features: &Tensor,
    ) -> Result<(Tensor, Tensor), NnError> {
        let all = [
            &self.unnormalized_widths,
            &self.unnormalized_heights,
            &self.unnormalized_derivatives,
        ];
        // The same for every sample.
        let parameters = Tensor::f_cat(&all, -1)?
            .view([1, -1])
            .f_expand([inputs.size()[0], -1], false)?;
        self.spline.transform(direction, inputs, features, &parameters, 1.0)
    }
}
