//! Coupling transform with rational-quadratic splines (Durkan et al. 2019, arXiv:1906.04032).

use super::super::error::check_width;
use super::{
    single_precision, Mode, NnError, PiecewiseRationalQuadraticCdf, RationalQuadraticSpline, SplineParameters,
    Transform, Transformed,
};
use crate::nn::{Conditioner, Scope};
use tch::{Kind, Tensor};

/// Passes half of the features on and sends each of the others through a spline whose parameters a network computes from
/// the first half and the context.
pub struct PiecewiseRationalQuadraticCoupling {
    identity_features: Tensor,
    transform_features: Tensor,
    transform_net: Box<dyn Conditioner>,
    unconditional_transform: Option<PiecewiseRationalQuadraticCdf>,
    spline: RationalQuadraticSpline,
    features: usize,
    num_transformed: usize,
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
            num_transformed: transformed.len(),
        })
    }

    /// The features that pass on and those that are transformed. Fallible: the indices may come from a file.
    fn split(&self, inputs: &Tensor) -> Result<(Tensor, Tensor), NnError> {
        check_width("PiecewiseRationalQuadraticCoupling", inputs, self.features)?;
        let identity = inputs.f_index_select(1, &self.identity_features)?;
        Ok((identity, inputs.f_index_select(1, &self.transform_features)?))
    }

    /// The reverse of [`split`](Self::split).
    fn merge(&self, inputs: &Tensor, identity: &Tensor, transformed: &Tensor) -> Result<Tensor, NnError> {
        let outputs = inputs.zeros_like().f_index_copy(1, &self.identity_features, identity)?;
        Ok(outputs.f_index_copy(1, &self.transform_features, transformed)?)
    }

    fn spline_parameters(
        &self,
        identity: &Tensor,
        context: Option<&Tensor>,
        mode: Mode,
    ) -> Result<SplineParameters, NnError> {
        // In mixed precision the network gives them in a short type.
        let parameters = self.transform_net.forward(identity, context, mode)?;
        let parameters = parameters.f_to_kind(identity.kind())?;
        let (per_feature, bins) = (self.spline.num_parameters() as i64, self.spline.num_bins() as i64);
        let parameters = parameters.f_view([-1, self.num_transformed as i64, per_feature])?;
        // So that the softmax starts close to uniform whatever the width of the network.
        let scale = self
            .transform_net
            .hidden_features()
            .map_or(1.0, |width| (width as f64).sqrt());
        Ok(SplineParameters {
            widths: parameters.narrow(-1, 0, bins) / scale,
            heights: parameters.narrow(-1, bins, bins) / scale,
            derivatives: parameters.narrow(-1, 2 * bins, bins - 1),
        })
    }
}

impl Transform for PiecewiseRationalQuadraticCoupling {
    fn forward(&self, inputs: &Tensor, context: Option<&Tensor>, mode: Mode) -> Result<Transformed, NnError> {
        let (mut identity, transformed) = self.split(inputs)?;
        let parameters = self.spline_parameters(&identity, context, mode)?;
        let _single = single_precision(inputs)?;
        let (transformed, logabsdet) = self.spline.forward(&transformed, &parameters);
        let mut logabsdet = logabsdet.sum_dim_intlist(1, false, None::<Kind>);
        if let Some(unconditional) = &self.unconditional_transform {
            let (outputs, more) = unconditional.forward(&identity, None, mode)?;
            identity = outputs;
            logabsdet = more.map_or(logabsdet.shallow_clone(), |more| &logabsdet + more);
        }
        Ok((self.merge(inputs, &identity, &transformed)?, Some(logabsdet)))
    }

    fn inverse(&self, inputs: &Tensor, context: Option<&Tensor>, mode: Mode) -> Result<Transformed, NnError> {
        let (mut identity, transformed) = self.split(inputs)?;
        let mut unconditional_logabsdet = None;
        if let Some(unconditional) = &self.unconditional_transform {
            let (outputs, logabsdet) = unconditional.inverse(&identity, None, mode)?;
            (identity, unconditional_logabsdet) = (outputs, logabsdet);
        }
        let parameters = self.spline_parameters(&identity, context, mode)?;
        let _single = single_precision(inputs)?;
        let (transformed, logabsdet) = self.spline.inverse(&transformed, &parameters);
        let mut logabsdet = logabsdet.sum_dim_intlist(1, false, None::<Kind>);
        if let Some(more) = unconditional_logabsdet {
            logabsdet += more;
        }
        Ok((self.merge(inputs, &identity, &transformed)?, Some(logabsdet)))
    }
}
