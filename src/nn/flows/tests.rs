//! The transforms against numbers of nflows, and against what defines them: inverse and Jacobian.

use super::*;
use crate::nn::{build_module, BuildContext, ModuleState};
use crate::settings::{Activation, BaseTransformSettings, FlowSettings, Norm};
use tch::{kind, no_grad, Kind};

const DOUBLE: (Kind, tch::Device) = (Kind::Double, tch::Device::Cpu);

fn largest_difference(a: &Tensor, b: &Tensor) -> f64 {
    (a.to_kind(Kind::Double) - b.to_kind(Kind::Double))
        .abs()
        .max()
        .double_value(&[])
}

/// Splines of 3 bins: 8 numbers each, 2 sin(0), 2 sin(1), ….
fn sine_parameters(batch: i64, features: i64) -> SplineParameters {
    let numbers: Tensor = Tensor::arange(batch * features * 8, DOUBLE).sin() * 2.0;
    let numbers = numbers.view([batch, features, 8]);
    SplineParameters {
        widths: numbers.narrow(-1, 0, 3),
        heights: numbers.narrow(-1, 3, 3),
        derivatives: numbers.narrow(-1, 6, 2),
    }
}

#[test]
fn splines_are_those_of_nflows() {
    let spline = RationalQuadraticSpline::new(3, 2.0).unwrap();
    // Outside, at the edge, inside.
    let x = Tensor::from_slice(&[-3.0, -2.0, -1.1, 0.2, 1.9, 2.5]).view([2, 3]);
    let check = |(y, logabsdet): (Tensor, Tensor), expected_y: [f64; 6], expected_logabsdet: [f64; 6]| {
        assert!(
            largest_difference(&y.view(-1), &Tensor::from_slice(&expected_y)) < 1e-6,
            "{y}"
        );
        assert!(
            largest_difference(&logabsdet.view(-1), &Tensor::from_slice(&expected_logabsdet)) < 1e-6,
            "{logabsdet}"
        );
    };
    check(
        spline.forward(&x, &sine_parameters(2, 3)),
        [-3.0, -2.0, -1.7765445, 1.9098515, 1.8943009, 2.5],
        [0.0, 0.0, -2.6121489, -5.6007878, 0.1081015, 0.0],
    );
    check(
        spline.inverse(&x, &sine_parameters(2, 3)),
        [-3.0, -2.0, 0.61680607, -1.925673, 1.9051287, 2.5],
        [0.0, 0.0, -1.4603418, -3.7584916, -0.10280785, 0.0],
    );
}

#[test]
fn a_spline_s_log_slope_is_its_derivative() {
    let spline = RationalQuadraticSpline::new(3, 2.0).unwrap();
    let x = Tensor::linspace(-2.5, 2.5, 300, DOUBLE)
        .view([100, 3])
        .set_requires_grad(true);
    let (y, logabsdet) = spline.forward(&x, &sine_parameters(100, 3));
    y.sum(Kind::Double).backward();
    assert!(largest_difference(&x.grad().log(), &logabsdet) < 1e-9);
    let (back, inverse_logabsdet) = spline.inverse(&y.detach(), &sine_parameters(100, 3));
    assert!(largest_difference(&back, &x) < 1e-9);
    assert!(largest_difference(&inverse_logabsdet, &-logabsdet) < 1e-9);
}

#[test]
fn splines_survive_edges_and_what_is_far_outside() {
    let spline = RationalQuadraticSpline::new(3, 2.0).unwrap();
    let inputs = [f32::NAN, f32::INFINITY, -1e30, 2.0, -2.0, 2.0000002];
    let x = Tensor::from_slice(&inputs).view([6, 1]).set_requires_grad(true);
    let leaf = (Tensor::randn([6, 1, 8], kind::FLOAT_CPU) * 30.0).set_requires_grad(true);
    let parameters = SplineParameters {
        widths: leaf.narrow(-1, 0, 3),
        heights: leaf.narrow(-1, 3, 3),
        derivatives: leaf.narrow(-1, 6, 2),
    };
    let (y, logabsdet) = spline.forward(&x, &parameters);
    assert!(y.double_value(&[0, 0]).is_nan(), "a NaN must not be hidden");
    let rest = |t: &Tensor| t.narrow(0, 1, 5);
    assert!(
        rest(&y).equal(&rest(&x)),
        "edges are fixed points, and the tails the identity: {y}"
    );
    assert!(bool::try_from(logabsdet.isfinite().all()).unwrap());
    (rest(&y).clamp(-3.0, 3.0).sum(Kind::Float) + logabsdet.sum(Kind::Float)).backward();
    assert!(bool::try_from(leaf.grad().isfinite().all()).unwrap(), "{}", leaf.grad());
    assert!(
        bool::try_from(rest(&x.grad()).isfinite().all()).unwrap(),
        "{}",
        x.grad()
    );

    let no_rows = Tensor::zeros([0, 3], DOUBLE);
    assert_eq!(spline.forward(&no_rows, &sine_parameters(0, 3)).0.size(), [0, 3]);
}

#[test]
fn splines_that_cannot_be_are_refused() {
    assert!(RationalQuadraticSpline::new(0, 1.0)
        .unwrap_err()
        .to_string()
        .contains("num_bins: 0; allowed are 1 to 1000"));
    assert!(RationalQuadraticSpline::new(1001, 1.0).is_err());
    assert!(RationalQuadraticSpline::new(8, 0.0)
        .unwrap_err()
        .to_string()
        .contains("tail_bound"));
    assert!(RationalQuadraticSpline::new(8, f64::NAN).is_err());
}

fn settings(input_dim: usize, apply_unconditional_transform: bool, norm: Norm) -> FlowSettings {
    FlowSettings {
        num_flow_steps: 3,
        base_transform: BaseTransformSettings {
            hidden_dim: 16,
            num_transform_blocks: 2,
            activation: Activation::Elu,
            dropout_probability: 0.0,
            norm,
            num_bins: 5,
            tail_bound: 2.0,
            apply_unconditional_transform,
        },
        input_dim: Some(input_dim),
        context_dim: Some(4),
    }
}

/// A flow away from its initial values, where each step is close to the identity. (Not far away: with shakes of 0.2 the flow
/// is so steep in places that single precision loses 1e-4 on the way back, in nflows too.)
fn shaken_flow(settings: &FlowSettings) -> (Flow, ModuleState) {
    tch::manual_seed(5);
    let (flow, state) = build_module(&BuildContext::default(), |scope| neural_spline_flow(scope, settings)).unwrap();
    no_grad(|| {
        for mut parameter in state.parameters() {
            let noise = parameter.randn_like() * 0.1;
            let _ = parameter.g_add_(&noise);
        }
    });
    (flow, state)
}

#[test]
fn the_inverse_undoes_the_flow() {
    for dim in [1, 2, 7] {
        for (unconditional, norm) in [(false, Norm::None), (true, Norm::BatchNorm), (true, Norm::LayerNorm)] {
            if unconditional && dim == 1 {
                continue; // nothing is left untransformed
            }
            let (flow, _) = shaken_flow(&settings(dim, unconditional, norm));
            let theta = Tensor::randn([200, dim as i64], kind::FLOAT_CPU) * 1.5;
            let context = Tensor::randn([200, 4], kind::FLOAT_CPU);
            let (noise, logabsdet) = flow.to_noise(&theta, &context, Mode::Eval).unwrap();
            assert!(largest_difference(&noise, &theta) > 0.1, "the flow does nothing");
            let (back, inverse_logabsdet) = flow.from_noise(&noise, &context).unwrap();
            let difference = largest_difference(&back, &theta);
            assert!(difference < 1e-4, "{dim} {unconditional} {norm:?}: {difference:e}");
            let difference = largest_difference(&inverse_logabsdet, &-logabsdet);
            assert!(difference < 1e-3, "{dim} {unconditional} {norm:?}: {difference:e}");
        }
    }
}

#[test]
fn the_log_determinant_is_the_jacobian_s() {
    let (flow, _) = shaken_flow(&settings(4, true, Norm::None));
    let theta = Tensor::randn([1, 4], kind::FLOAT_CPU).set_requires_grad(true);
    let context = Tensor::randn([1, 4], kind::FLOAT_CPU);
    let (noise, logabsdet) = flow.to_noise(&theta, &context, Mode::Eval).unwrap();
    let rows: Vec<Tensor> = (0..4)
        .map(|i| {
            Tensor::run_backward(&[noise.get(0).get(i)], &[&theta], true, false)
                .remove(0)
                .squeeze_dim(0)
        })
        .collect();
    let (_, expected) = Tensor::stack(&rows, 0).to_kind(Kind::Double).slogdet();
    assert!((logabsdet.double_value(&[0]) - expected.double_value(&[])).abs() < 1e-4);
}

#[test]
fn masks_alternate() {
    let transformed = |mask: CouplingMask| mask.places(true);
    assert_eq!(transformed(CouplingMask::alternating(5, true)), [0, 2, 4]);
    assert_eq!(transformed(CouplingMask::alternating(5, false)), [1, 3]);
    assert_eq!(transformed(CouplingMask::alternating(1, false)), [0]);
}

#[test]
fn theta_and_context_of_another_shape_are_refused() {
    let (flow, _) = shaken_flow(&settings(4, false, Norm::None));
    let tensor = |rows, columns| Tensor::zeros([rows, columns], kind::FLOAT_CPU);
    let message = |theta, context| flow.log_prob(&theta, &context, Mode::Eval).unwrap_err().to_string();
    assert!(message(tensor(3, 5), tensor(3, 4)).contains("[batch, 4], got [3, 5]"));
    assert!(message(tensor(3, 4), tensor(2, 4)).contains("theta has 3 samples, got [2, 4]"));
    assert!(flow.log_prob(&tensor(3, 4), &tensor(3, 6), Mode::Eval).is_err());
}

#[test]
fn buffers_that_point_nowhere_are_an_error() {
    let (flow, state) = shaken_flow(&settings(4, false, Norm::None));
    let mut saved = state.state_dict();
    let name = "_transform._transforms.0._transforms.0._transforms.0._permutation";
    saved.insert(name.into(), Tensor::from_slice(&[0i64, 1, 2, 9]));
    state.load(&saved).unwrap();
    let input = Tensor::zeros([3, 4], kind::FLOAT_CPU);
    assert!(matches!(
        flow.log_prob(&input, &input, Mode::Eval),
        Err(NnError::TorchExt(_))
    ));
}
