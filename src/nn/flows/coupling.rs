//! Coupling transform with rational-quadratic splines (Durkan et al. 2019, arXiv:1906.04032).

use super::super::error::check_width;
use super::{Mode, NnError, PiecewiseRationalQuadraticCdf, RationalQuadraticSpline, Transform, Transformed};
use crate::nn::{Conditioner, Scope};
use crate::torch_ext::{select_and_pass_on, Direction};
use tch::Tensor;

/// Passes half of the features on and sends each of the others through a spline whose parameters a network computes from
/// the first half and the context.
pub struct PiecewiseRationalQuadraticCoupling {
    identity_features: Tensor,
    transform_features: Tensor,
    transform_net: Box<dyn Conditioner>,
    unconditional_transform: Option<PiecewiseRationalQuadraticCdf>,
    spline: RationalQuadraticSpline,
    features: usize,
}

/// Which of the features a coupling transforms.
pub struct CouplingMask(Vec<bool>);

impl CouplingMask {
    /// Every other feature, the first one included if `first_transformed`; a single feature is always transformed.
    pub fn alternating(features: usize, first_transformed: bool) -> Self {
        CouplingMask(
            (0..features)
                .map(|i| features == 1 || (i % 2 == 0) == first_transformed)
                .collect(),
        )
    }

    /// The places of the features that are transformed, or of those that are not.
    pub fn places(&self, transformed: bool) -> Vec<i64> {
        (0..)
            .zip(&self.0)
            .filter(|(_, &m)| m == transformed)
            .map(|(i, _)| i)
            .collect()
    }
}

impl PiecewiseRationalQuadraticCoupling {
    /// `make_transform_net(scope, in_features, out_features)` makes the network.
    pub fn new(
        scope: &Scope,
        mask: &CouplingMask,
        spline: RationalQuadraticSpline,
        apply_unconditional_transform: bool,
        make_transform_net: impl FnOnce(&Scope, usize, usize) -> Result<Box<dyn Conditioner>, NnError>,
    ) -> Result<Self, NnError> {
        let (identity, transformed) = (mask.places(false), mask.places(true));
        let identity_features = scope.buffer("identity_features", Tensor::f_from_slice(&identity)?)?;
        let transform_features = scope.buffer("transform_features", Tensor::f_from_slice(&transformed)?)?;
        let num_parameters = transformed.len() * spline.num_parameters();
        let transform_net = make_transform_net(&scope.child("transform_net"), identity.len(), num_parameters)?;
        let unconditional_transform = apply_unconditional_transform
            .then(|| {
                let scope = scope.child("unconditional_transform");
                PiecewiseRationalQuadraticCdf::new(&scope, identity.len(), spline)
            })
            .transpose()?;
        Ok(PiecewiseRationalQuadraticCoupling {
            identity_features,
            transform_features,
            transform_net,
            unconditional_transform,
            spline,
            features: mask.0.len(),
        })
    }

    /// The splines of the transformed features, whose parameters come from the others and the context.
    fn transform(
        &self,
        direction: Direction,
        inputs: &Tensor,
        context: Option<&Tensor>,
        mode: Mode,
    ) -> Result<(Tensor, Tensor), NnError> {
        check_width("PiecewiseRationalQuadraticCoupling", inputs, self.features)?;
        // Fallible: the indices may come from a file.
        let (identity, inputs) = select_and_pass_on(inputs, &self.identity_features)?;
        let parameters = self.transform_net.forward(&identity, context, mode)?;
        // So that the softmax starts close to uniform whatever the width of the network.
        let width = self.transform_net.hidden_features().unwrap_or(1);
        let scale = 1.0 / (width as f64).sqrt();
        self.spline
            .transform(direction, &inputs, &self.transform_features, &parameters, scale)
    }

    /// The splines of the other features, where there are any.
    fn transform_unconditionally(
        &self,
        direction: Direction,
        inputs: &Tensor,
    ) -> Result<Option<(Tensor, Tensor)>, NnError> {
        self.unconditional_transform
            .as_ref()
            .map(|splines| splines.transform(direction, inputs, &self.identity_features))
            .transpose()
    }
}

impl Transform for PiecewiseRationalQuadraticCoupling {
    fn forward(&self, inputs: &Tensor, context: Option<&Tensor>, mode: Mode) -> Result<Transformed, NnError> {
        let (outputs, logabsdet) = self.transform(Direction::Forward, inputs, context, mode)?;
        Ok(match self.transform_unconditionally(Direction::Forward, &outputs)? {
            Some((outputs, more)) => (outputs, Some(logabsdet + more)),
            None => (outputs, Some(logabsdet)),
        })
    }

    fn inverse(&self, inputs: &Tensor, context: Option<&Tensor>, mode: Mode) -> Result<Transformed, NnError> {
        // The parameters come from the identity features as they are before the forward direction.
        if let Some((inputs, more)) = self.transform_unconditionally(Direction::Inverse, inputs)? {
            let (outputs, logabsdet) = self.transform(Direction::Inverse, &inputs, context, mode)?;
            return Ok((outputs, Some(logabsdet + more)));
        }
        let (outputs, logabsdet) = self.transform(Direction::Inverse, inputs, context, mode)?;
        Ok((outputs, Some(logabsdet)))
    }
}
