//! The splines' kernel against the same made of libtorch's operations, and against finite differences.

use super::RationalQuadraticSpline;
use crate::torch_ext::Direction;
use tch::{no_grad, Device, Kind, Tensor};

const DOUBLE: (Kind, Device) = (Kind::Double, Device::Cpu);
const DIRECTIONS: [Direction; 2] = [Direction::Forward, Direction::Inverse];
const BOUND: f64 = 2.0;

fn spline(bins: usize) -> RationalQuadraticSpline {
    RationalQuadraticSpline::new(bins, BOUND).unwrap()
}

/// A batch `[batch, 5]` of which two features go through splines, and their parameters, in double.
struct Case {
    name: &'static str,
    bins: usize,
    scale: f64,
    inputs: Tensor,
    parameters: Tensor,
}

const FEATURES: [i64; 2] = [3, 0];

fn features() -> Tensor {
    Tensor::from_slice(&FEATURES)
}

impl Case {
    /// Inputs inside and outside; parameters normal times `spread`.
    fn random(name: &'static str, batch: i64, bins: usize, scale: f64, spread: f64) -> Case {
        let numbers = 2 * (3 * bins as i64 - 1);
        Case {
            name,
            bins,
            scale,
            inputs: Tensor::randn([batch, 5], DOUBLE) * 1.5,
            parameters: Tensor::randn([batch, numbers], DOUBLE) * spread,
        }
    }

    /// The same with all parameters at either end of `±extreme`.
    fn extreme(name: &'static str, batch: i64, bins: usize, extreme: f64) -> Case {
        let case = Case::random(name, batch, bins, 1.0, 1.0);
        Case {
            parameters: case.parameters.sign() * extreme,
            ..case
        }
    }

    /// Inputs replaced, sample by sample, by the knots along the axis that `direction` searches.
    fn on_knots(self, direction: Direction) -> Case {
        let (batch, bins) = (self.inputs.size()[0], self.bins as i64);
        let start = if direction == Direction::Forward { 0 } else { bins };
        let numbers = self.parameters.view([batch, 2, 3 * bins - 1]).narrow(-1, start, bins) * self.scale;
        let knots = spline(self.bins).knots(&numbers, 1e-3);
        let turn = Tensor::arange(batch, (Kind::Int64, Device::Cpu)).remainder(bins + 1);
        let chosen = knots.gather(-1, &turn.view([batch, 1, 1]).expand([batch, 2, 1], false), false);
        let inputs = self.inputs.index_copy(1, &features(), &chosen.squeeze_dim(-1));
        Case { inputs, ..self }
    }

    /// Inputs replaced by the ends of the interval, the numbers next to them, and what is far outside.
    fn at_the_ends(self) -> Case {
        let (below, above) = (BOUND * (1.0 - f64::EPSILON), BOUND * (1.0 + f64::EPSILON));
        let values = [
            BOUND,
            -BOUND,
            below,
            -below,
            above,
            -above,
            1e30,
            -1e30,
            f64::INFINITY,
            0.0,
        ];
        let batch = self.inputs.size()[0];
        let inputs: Vec<f64> = (0..batch as usize * 5).map(|i| values[i / 5 % values.len()]).collect();
        Case {
            inputs: Tensor::from_slice(&inputs).view([batch, 5]),
            ..self
        }
    }

    fn all(direction: Direction) -> Vec<Case> {
        tch::manual_seed(3);
        let random = |batch, bins| Case::random("random", batch, bins, 0.5, 2.0);
        let mut cases: Vec<Case> = [(1, 8), (15, 8), (16, 1), (17, 2), (100, 8), (40, 33)]
            .map(|(batch, bins)| random(batch, bins))
            .into();
        cases.extend([
            random(90, 8).on_knots(direction),
            random(30, 8).at_the_ends(),
            Case::random("steep", 200, 8, 1.0, 8.0),
            Case::extreme("extreme", 300, 8, 50.0),
            Case::extreme("extreme", 90, 8, 50.0).on_knots(direction),
            Case::extreme("extreme", 30, 8, 50.0).at_the_ends(),
        ]);
        cases
    }

    /// Outputs and log |det J|, and gradients of inputs and parameters for one weighted sum of both, all in double; computed
    /// in `kind`.
    fn results(&self, kind: Kind, run: impl Fn(&Tensor, &Tensor) -> (Tensor, Tensor)) -> [Tensor; 4] {
        let leaf = |t: &Tensor| t.to_kind(kind).copy().set_requires_grad(true);
        let (inputs, parameters) = (leaf(&self.inputs), leaf(&self.parameters));
        let (outputs, logabsdet) = run(&inputs, &parameters);
        let weights = |t: &Tensor| Tensor::arange(t.numel() as i64, DOUBLE).sin().view_as(t).to_kind(kind);
        let sum = (&outputs * weights(&outputs)).nan_to_num(0.0, 0.0, 0.0).sum(kind);
        (sum + (&logabsdet * weights(&logabsdet)).sum(kind)).backward();
        [outputs.detach(), logabsdet.detach(), inputs.grad(), parameters.grad()].map(|t| t.to_kind(Kind::Double))
    }

    fn kernel(&self, kind: Kind, direction: Direction) -> [Tensor; 4] {
        let spline = spline(self.bins);
        self.results(kind, |inputs, parameters| {
            spline
                .transform(direction, inputs, &features(), parameters, self.scale)
                .unwrap()
        })
    }

    fn operations(&self, kind: Kind, direction: Direction) -> [Tensor; 4] {
        let spline = spline(self.bins);
        self.results(kind, |inputs, parameters| {
            spline
                .transform_by_operations(direction, inputs, &features(), parameters, self.scale)
                .unwrap()
        })
    }

    /// The numbers as single precision holds them.
    fn rounded(self) -> Case {
        let round = |t: &Tensor| t.to_kind(Kind::Float).to_kind(Kind::Double);
        let (inputs, parameters) = (round(&self.inputs), round(&self.parameters));
        Case {
            inputs,
            parameters,
            ..self
        }
    }
}

/// The largest |a - b| / max(1, |b|) over all elements; equal infinities do not differ.
fn difference(a: &Tensor, b: &Tensor) -> f64 {
    let relative = ((a - b) / b.abs().clamp_min(1.0)).abs();
    let relative = relative.masked_fill(&a.eq_tensor(b), 0.0);
    relative.max().double_value(&[])
}

/// Fails where `actual` is farther from `expected` than `tolerance`, or not a number.
fn compare(case: &Case, direction: Direction, actual: &[Tensor; 4], expected: &[Tensor; 4], tolerance: f64) {
    let names = ["outputs", "log|det|", "gradient of inputs", "gradient of parameters"];
    for ((name, actual), expected) in names.iter().zip(actual).zip(expected) {
        let d = difference(actual, expected);
        let (batch, bins) = (case.inputs.size()[0], case.bins);
        let where_ = format!("{} {batch} samples, {bins} bins, {direction:?}: {name}", case.name);
        assert!(d <= tolerance, "{where_}: off by {d:e}");
        assert!(!bool::try_from(actual.isnan().any()).unwrap(), "{where_}: NaN");
    }
}

#[test]
fn the_kernel_computes_what_the_operations_do() {
    for direction in DIRECTIONS {
        for case in Case::all(direction) {
            let kernel = case.kernel(Kind::Double, direction);
            compare(
                &case,
                direction,
                &kernel,
                &case.operations(Kind::Double, direction),
                1e-6,
            );
        }
    }
}

/// Operations in single precision are themselves off by more than this where bins are narrow, as their knots are rounded.
#[test]
fn in_single_precision_only_the_results_are_rounded() {
    for direction in DIRECTIONS {
        for case in Case::all(direction) {
            let case = case.rounded();
            let kernel = case.kernel(Kind::Float, direction);
            compare(
                &case,
                direction,
                &kernel,
                &case.operations(Kind::Double, direction),
                1e-5,
            );
        }
    }
}

#[test]
fn gradients_are_the_limits_of_finite_differences() {
    tch::manual_seed(4);
    let case = Case::random("differences", 20, 4, 0.7, 1.0);
    let spline = spline(4);
    let step = 1e-6;
    for direction in DIRECTIONS {
        let sums = |inputs: &Tensor, parameters: &Tensor| {
            let (outputs, logabsdet) = spline
                .transform(direction, inputs, &features(), parameters, 0.7)
                .unwrap();
            let weights = |t: &Tensor| Tensor::arange(t.numel() as i64, DOUBLE).sin().view_as(t);
            (&outputs * weights(&outputs)).sum_dim_intlist(1, false, Kind::Double) + &logabsdet * weights(&logabsdet)
        };
        let [.., by_inputs, by_parameters] = case.kernel(Kind::Double, direction);
        // Samples do not mix, so one element of every sample is moved at a time.
        let check = |name: &str, values: &Tensor, gradient: &Tensor, sums: &dyn Fn(&Tensor) -> Tensor| {
            for column in 0..values.size()[1] {
                let moved = |by: f64| {
                    let moved = values.copy();
                    let _ = moved.select(1, column).g_add_scalar_(by);
                    sums(&moved)
                };
                let expected = (moved(step) - moved(-step)) / (2.0 * step);
                let d = difference(&gradient.select(1, column), &expected);
                assert!(d < 1e-6, "{direction:?} {name} {column}: off by {d:e}");
            }
        };
        check("input", &case.inputs, &by_inputs, &|x| sums(x, &case.parameters));
        check("parameter", &case.parameters, &by_parameters, &|p| {
            sums(&case.inputs, p)
        });
    }
}

#[test]
fn directions_undo_each_other() {
    tch::manual_seed(5);
    let case = Case::random("there and back", 300, 8, 1.0, 2.0);
    let run = |direction, x: &Tensor| {
        spline(8)
            .transform(direction, x, &features(), &case.parameters, 1.0)
            .unwrap()
    };
    let (there, logabsdet) = run(Direction::Forward, &case.inputs);
    let (back, inverse_logabsdet) = run(Direction::Inverse, &there);
    assert!(difference(&back, &case.inputs) < 1e-9);
    assert!(difference(&inverse_logabsdet, &-logabsdet) < 1e-8);
    assert!(difference(&there, &case.inputs) > 0.1, "the spline does nothing");
}

#[test]
fn half_precision_parameters_are_taken_as_they_are() {
    tch::manual_seed(6);
    for kind in [Kind::BFloat16, Kind::Half] {
        let case = Case::random("half", 50, 8, 0.5, 2.0);
        let leaf = case.parameters.to_kind(kind).set_requires_grad(true);
        let inputs = case.inputs.to_kind(Kind::Float);
        let run = |parameters: &Tensor| {
            let (outputs, logabsdet) = spline(8)
                .transform(Direction::Forward, &inputs, &features(), parameters, 0.5)
                .unwrap();
            (outputs.sum(Kind::Float) + logabsdet.square().sum(Kind::Float)).backward();
            (outputs, logabsdet)
        };
        let (outputs, logabsdet) = run(&leaf);
        let wide = leaf.detach().to_kind(Kind::Float).set_requires_grad(true);
        let (expected, expected_logabsdet) = run(&wide);
        assert!(
            outputs.equal(&expected) && logabsdet.equal(&expected_logabsdet),
            "{kind:?}"
        );
        assert_eq!(leaf.grad().kind(), kind);
        assert!(leaf.grad().equal(&wide.grad().to_kind(kind)), "{kind:?}");
    }
}

#[test]
fn nothing_is_computed_for_what_is_frozen() {
    tch::manual_seed(7);
    let case = Case::random("frozen", 20, 8, 1.0, 1.0);
    let run = |x: &Tensor, p: &Tensor| spline(8).transform(Direction::Forward, x, &features(), p, 1.0).unwrap();
    let [outputs, _, by_inputs, by_parameters] = case.kernel(Kind::Double, Direction::Forward);
    let (plain, _) = run(&case.inputs, &case.parameters);
    assert!(!plain.requires_grad() && plain.equal(&outputs));
    let fresh = |t: &Tensor| t.copy().set_requires_grad(true);
    assert!(!no_grad(|| run(&fresh(&case.inputs), &case.parameters))
        .0
        .requires_grad());
    let only_inputs = case.results(Kind::Double, |x, p| run(x, &p.detach()).apply_with(p));
    let only_parameters = case.results(Kind::Double, |x, p| run(&x.detach(), p).apply_with(x));
    assert!(only_inputs[2].equal(&by_inputs) && only_parameters[3].equal(&by_parameters));
}

/// Keeps a tensor in the graph with no influence, so that it has a gradient.
trait ApplyWith {
    fn apply_with(self, other: &Tensor) -> Self;
}

impl ApplyWith for (Tensor, Tensor) {
    fn apply_with(self, other: &Tensor) -> Self {
        (self.0, self.1 + other.sum(Kind::Double) * 0.0)
    }
}

#[test]
fn strides_do_not_matter() {
    tch::manual_seed(8);
    let case = Case::random("strided", 37, 8, 1.0, 1.0);
    let run = |x: &Tensor, p: &Tensor| spline(8).transform(Direction::Forward, x, &features(), p, 1.0).unwrap();
    let expected = case.kernel(Kind::Double, Direction::Forward);
    let transposed = |t: &Tensor| t.tr().contiguous().tr();
    let wide = |t: &Tensor| Tensor::cat(&[t, t], 1).narrow(1, t.size()[1], t.size()[1]);
    for change in [&transposed as &dyn Fn(&Tensor) -> Tensor, &wide] {
        let actual = case.results(Kind::Double, |x, p| run(&change(x), &change(p)));
        for (actual, expected) in actual.iter().zip(&expected) {
            assert!(actual.equal(expected));
        }
    }
    // Parameters that all samples share.
    let shared = case.parameters.narrow(0, 0, 1);
    let repeated = Case {
        parameters: shared.repeat([37, 1]),
        ..Case::random("shared", 37, 8, 1.0, 1.0)
    };
    let expected = repeated.kernel(Kind::Double, Direction::Forward);
    let actual = Case {
        parameters: shared,
        ..repeated
    }
    .results(Kind::Double, |x, p| run(x, &p.expand([37, -1], false)));
    assert!(actual[0].equal(&expected[0]) && actual[2].equal(&expected[2]));
    let sum = expected[3].sum_dim_intlist(0, true, Kind::Double);
    assert!(difference(&actual[3], &sum) < 1e-12);
}

#[test]
fn a_nan_is_not_hidden() {
    let mut case = Case::random("NaN", 3, 8, 1.0, 1.0);
    let run = |case: &Case| {
        spline(8)
            .transform(Direction::Forward, &case.inputs, &features(), &case.parameters, 1.0)
            .unwrap()
    };
    let _ = case.inputs.get(1).get(3).fill_(f64::NAN);
    let (outputs, logabsdet) = run(&case);
    assert!(outputs.double_value(&[1, 3]).is_nan());
    assert!(bool::try_from(logabsdet.isfinite().all()).unwrap());
    for place in [0, 9, 22] {
        case = Case::random("NaN", 3, 8, 1.0, 1.0);
        case.inputs *= 0.0;
        let _ = case.parameters.get(2).get(place).fill_(f64::NAN);
        let parameters = case.parameters.copy().set_requires_grad(true);
        let (outputs, _) = spline(8)
            .transform(Direction::Forward, &case.inputs, &features(), &parameters, 1.0)
            .unwrap();
        let by_operations = spline(8)
            .transform_by_operations(Direction::Forward, &case.inputs, &features(), &case.parameters, 1.0)
            .unwrap()
            .0;
        assert_eq!(outputs.isnan(), by_operations.isnan(), "parameter {place}");
    }
}

#[test]
fn arguments_that_do_not_fit_are_refused() {
    let case = Case::random("refused", 3, 8, 1.0, 1.0);
    let message = |features: &[i64], parameters: &Tensor| {
        let features = Tensor::from_slice(features);
        let result = spline(8).transform(Direction::Forward, &case.inputs, &features, parameters, 1.0);
        result.unwrap_err().to_string()
    };
    assert!(message(&[3, 5], &case.parameters).contains("feature 5 of 5"));
    assert!(message(&[3, 3], &case.parameters).contains("two splines"));
    assert!(message(&[3], &case.parameters).contains("have shape [3, 23], found [3, 46]"));
    let leaf = case.inputs.copy().set_requires_grad(true);
    let (outputs, _) = spline(8)
        .transform(Direction::Forward, &leaf, &features(), &case.parameters, 1.0)
        .unwrap();
    let twice = Tensor::f_run_backward(&[outputs.sum(Kind::Double)], &[&leaf], true, true);
    assert!(twice.unwrap_err().to_string().contains("second derivatives"));
}
