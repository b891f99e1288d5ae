//! Dingo's neural spline flow: steps of a linear transform and a spline coupling, and a last linear transform
//! (Durkan et al. 2019, arXiv:1906.04032, section 5; arXiv:2106.12594).

use super::{
    CompositeTransform, CouplingMask, Flow, LuLinear, NnError, PiecewiseRationalQuadraticCoupling, RandomPermutation,
    RationalQuadraticSpline, StandardNormal, Transform,
};
use crate::nn::{
    Conditioner, DenseResidualNet, DenseResidualNetConfig, ResidualBlockConfig, ResidualNet, ResidualNetConfig, Scope,
};
use crate::settings::{BaseTransformSettings, FlowSettings, Norm};

/// `settings.input_dim` and `settings.context_dim` must be known.
pub fn neural_spline_flow(scope: &Scope, settings: &FlowSettings) -> Result<Flow, NnError> {
    let features = known(settings.input_dim, "model.posterior_kwargs.input_dim")?;
    let context_features = known(settings.context_dim, "model.posterior_kwargs.context_dim")?;
    let list = scope.child("_transform").child("_transforms");
    let mut transforms: Vec<Box<dyn Transform>> = Vec::with_capacity(settings.num_flow_steps + 1);
    for i in 0..settings.num_flow_steps {
        let step = list.child(i).child("_transforms");
        transforms.push(Box::new(CompositeTransform::new(vec![
            linear_transform(&step.child(0), features)?,
            coupling_transform(&step.child(1), i, features, context_features, &settings.base_transform)?,
        ])));
    }
    transforms.push(linear_transform(&list.child(settings.num_flow_steps), features)?);
    Ok(Flow::new(
        Box::new(CompositeTransform::new(transforms)),
        StandardNormal::new(features),
    ))
}

fn known(value: Option<usize>, key: &'static str) -> Result<usize, NnError> {
    match value {
        Some(n) if n > 0 => Ok(n),
        Some(_) => Err(NnError::settings(key, "0; must be positive")),
        None => Err(NnError::settings(key, "not known before the data are")),
    }
}

/// A random permutation, then an LU-decomposed matrix.
fn linear_transform(scope: &Scope, features: usize) -> Result<Box<dyn Transform>, NnError> {
    let list = scope.child("_transforms");
    Ok(Box::new(CompositeTransform::new(vec![
        Box::new(RandomPermutation::new(&list.child(0), features)?),
        Box::new(LuLinear::new(&list.child(1), features)?),
    ])))
}

/// The coupling of step `i`; the transformed half alternates from step to step.
fn coupling_transform(
    scope: &Scope,
    i: usize,
    features: usize,
    context_features: usize,
    settings: &BaseTransformSettings,
) -> Result<Box<dyn Transform>, NnError> {
    let mask = CouplingMask::alternating(features, i % 2 == 0);
    let spline = RationalQuadraticSpline::new(settings.num_bins, settings.tail_bound)?;
    let coupling = PiecewiseRationalQuadraticCoupling::new(
        scope,
        &mask,
        spline,
        settings.apply_unconditional_transform,
        |scope, inputs, outputs| conditioner(scope, inputs, outputs, context_features, settings),
    )?;
    Ok(Box::new(coupling))
}

/// nflows' network, or Dingo's where LayerNorm is asked for, which nflows' does not know.
fn conditioner(
    scope: &Scope,
    in_features: usize,
    out_features: usize,
    context_features: usize,
    settings: &BaseTransformSettings,
) -> Result<Box<dyn Conditioner>, NnError> {
    let block = ResidualBlockConfig {
        context_features: Some(context_features),
        activation: settings.activation,
        dropout_probability: settings.dropout_probability,
        norm: settings.norm,
    };
    if settings.norm == Norm::LayerNorm {
        let config = DenseResidualNetConfig {
            input_dim: in_features,
            output_dim: out_features,
            hidden_dims: vec![settings.hidden_dim; settings.num_transform_blocks],
            block,
        };
        return Ok(Box::new(DenseResidualNet::new(scope, &config)?));
    }
    let config = ResidualNetConfig {
        in_features,
        out_features,
        hidden_features: settings.hidden_dim,
        num_blocks: settings.num_transform_blocks,
        block,
    };
    Ok(Box::new(ResidualNet::new(scope, &config)?))
}
