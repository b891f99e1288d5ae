//! A spline per feature that depends on nothing: nflows' `PiecewiseRationalQuadraticCDF`.

use super::super::error::check_width;
use super::{Mode, NnError, RationalQuadraticSpline, SplineParameters, Transform, Transformed};
use crate::nn::{Init, Scope};
use tch::{Kind, Tensor};

/// The unconditional transform of a coupling's identity features (`apply_unconditional_transform`).
pub struct PiecewiseRationalQuadraticCdf {
    spline: RationalQuadraticSpline,
    unnormalized_widths: Tensor,
    unnormalized_heights: Tensor,
    unnormalized_derivatives: Tensor,
    features: usize,
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
            features,
        })
    }

    /// The same spline for every sample.
    fn parameters(&self, inputs: &Tensor) -> Result<SplineParameters, NnError> {
        check_width("PiecewiseRationalQuadraticCDF", inputs, self.features)?;
        let share = |t: &Tensor| t.unsqueeze(0).expand([inputs.size()[0], -1, -1], false);
        Ok(SplineParameters {
            widths: share(&self.unnormalized_widths),
            heights: share(&self.unnormalized_heights),
            derivatives: share(&self.unnormalized_derivatives),
        })
    }
}

impl Transform for PiecewiseRationalQuadraticCdf {
    fn forward(&self, inputs: &Tensor, _context: Option<&Tensor>, _mode: Mode) -> Result<Transformed, NnError> {
        let (outputs, logabsdet) = self.spline.forward(inputs, &self.parameters(inputs)?);
        Ok((outputs, Some(logabsdet.sum_dim_intlist(1, false, None::<Kind>))))
    }

    fn inverse(&self, inputs: &Tensor, _context: Option<&Tensor>, _mode: Mode) -> Result<Transformed, NnError> {
        let (outputs, logabsdet) = self.spline.inverse(inputs, &self.parameters(inputs)?);
        Ok((outputs, Some(logabsdet.sum_dim_intlist(1, false, None::<Kind>))))
    }
}
