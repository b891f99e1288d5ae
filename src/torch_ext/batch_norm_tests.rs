//! The kernels against libtorch's own operations in double precision, and against themselves.

use super::*;
use tch::{no_grad, Device, Kind};

const MOMENTUM: f64 = 0.1;
const EPS: f64 = 1e-3;

const ACTIVATIONS: [Activation; 5] = [
    Activation::None,
    Activation::Elu,
    Activation::Relu,
    Activation::LeakyRelu,
    Activation::Gelu,
];

/// One feature, one value more than a chunk of rows, more columns than a tile, odd numbers of each.
const SHAPES: [[i64; 2]; 6] = [[2, 3], [33, 1], [32, 64], [100, 7], [65, 300], [517, 130]];

/// Everything a pass is made from; `requires_grad` where it is differentiated.
struct Case {
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    running_mean: Tensor,
    running_var: Tensor,
    batches: Tensor,
    /// Gradients of the output and of what goes past the layer.
    dy: Tensor,
    dskip: Tensor,
}

/// What comes of it.
struct Outcome {
    named: Vec<(&'static str, Tensor)>,
}

fn numbers(shape: &[i64], step: f64) -> Tensor {
    let count = shape.iter().product::<i64>();
    (Tensor::arange(count, (Kind::Double, Device::Cpu)) * step)
        .sin()
        .view(shape)
}

impl Case {
    /// Values that single precision holds, in `kind`.
    fn new(x: &Tensor, kind: Kind) -> Case {
        let (shape, width) = (x.size(), [x.size()[1]]);
        let parameters = if kind == Kind::BFloat16 { Kind::Float } else { kind };
        let tensor = |values: Tensor, kind| values.to_kind(Kind::BFloat16).to_kind(kind);
        Case {
            x: tensor(x.copy(), kind).set_requires_grad(true),
            weight: tensor(numbers(&width, 1.3) + 1.5, parameters).set_requires_grad(true),
            bias: tensor(numbers(&width, 2.1), parameters).set_requires_grad(true),
            running_mean: tensor(numbers(&width, 0.7), parameters),
            running_var: tensor(numbers(&width, 1.1) + 2.0, parameters),
            batches: Tensor::from(5i64),
            dy: tensor(numbers(&shape, 1.7), kind),
            dskip: tensor(numbers(&shape, 0.9), kind),
        }
    }

    fn tensors(&self) -> BatchNormTensors<'_> {
        BatchNormTensors {
            weight: Some(&self.weight),
            bias: Some(&self.bias),
            running_mean: Some(&self.running_mean),
            running_var: Some(&self.running_var),
            num_batches_tracked: Some(&self.batches),
        }
    }

    fn backward(self, y: &Tensor, skip: &Tensor) -> Outcome {
        let (dy, dskip) = (Some(&self.dy), Some(&self.dskip));
        let loss = (y * dy.unwrap()).sum(Kind::Double) + (skip * dskip.unwrap()).sum(Kind::Double);
        loss.backward();
        let named = vec![
            ("output", y.detach()),
            ("input gradient", self.x.grad()),
            ("weight gradient", self.weight.grad()),
            ("bias gradient", self.bias.grad()),
            ("running mean", self.running_mean),
            ("running variance", self.running_var),
            ("batches", self.batches),
        ];
        Outcome { named }
    }

    /// Through the kernels of `level`.
    fn fused(self, statistics: BatchStatistics, activation: Activation, level: Level) -> Outcome {
        let options = BatchNormOptions {
            statistics,
            momentum: MOMENTUM,
            eps: EPS,
            activation,
        };
        let (y, skip) = with_skip_at(level, &self.x, self.tensors(), options).unwrap();
        self.backward(&y, &skip)
    }

    /// Through libtorch's operations.
    fn plain(self, training: bool, activation: Activation) -> Outcome {
        let (weight, bias) = (Some(&self.weight), Some(&self.bias));
        let (mean, var) = (Some(&self.running_mean), Some(&self.running_var));
        let z = self
            .x
            .batch_norm(weight, bias, mean, var, training, MOMENTUM, EPS, false);
        let y = match activation {
            Activation::None => z,
            Activation::Elu => z.elu(),
            Activation::Relu => z.relu(),
            Activation::LeakyRelu => z.leaky_relu(),
            Activation::Gelu => z.gelu("none"),
        };
        if training {
            let _ = no_grad(|| self.batches.shallow_clone().g_add_scalar_(1));
        }
        let skip = self.x.shallow_clone();
        self.backward(&y, &skip)
    }
}

impl Outcome {
    fn assert_close(&self, expected: &Outcome, tolerance: f64, what: &str) {
        for ((name, found), (_, expected)) in self.named.iter().zip(&expected.named) {
            assert_eq!(found.size(), expected.size(), "{what}: {name}");
            let (found, expected) = (found.to_kind(Kind::Double), expected.to_kind(Kind::Double));
            let error = (found - &expected).abs().max().double_value(&[]);
            let scale = expected.abs().max().double_value(&[]).max(1.0);
            assert!(
                error <= tolerance * scale,
                "{what}: {name} is off by {error:e}, largest {scale:e}"
            );
        }
    }

    fn assert_same(&self, expected: &Outcome, what: &str) {
        for ((name, found), (_, expected)) in self.named.iter().zip(&expected.named) {
            assert!(found.equal(expected), "{what}: {name}");
        }
    }
}

fn statistics(training: bool) -> BatchStatistics<'static> {
    match training {
        true => BatchStatistics::Batch,
        false => BatchStatistics::Running,
    }
}

fn compare(x: &Tensor, training: bool, what: &str) {
    for activation in ACTIVATIONS {
        let what = format!("{what} {activation:?}, training: {training}");
        let expected = Case::new(x, Kind::Double).plain(training, activation);
        for (kind, tolerance) in [(Kind::Float, 1e-5), (Kind::Double, 1e-10)] {
            let found = Case::new(x, kind).fused(statistics(training), activation, Level::detected());
            found.assert_close(&expected, tolerance, &format!("{what} {kind:?}"));
        }
    }
}

#[test]
fn equals_plain_operations() {
    for shape in SHAPES {
        let x = numbers(&shape, 0.37) * 3.0 + numbers(&[shape[1]], 0.2);
        for training in [true, false] {
            compare(&x, training, &format!("{shape:?}"));
        }
    }
}

/// At zero, where slopes jump, and far from it, where exponentials saturate.
#[test]
fn activations_at_zero_and_far_out() {
    let x = Tensor::from_slice(&[
        0.0, -0.0, 1e4, -1e4, 90.0, -90.0, -110.0, 1e-30, -1e-30, 20.0, -17.0, -0.5f64,
    ]);
    for activation in ACTIVATIONS {
        let case = |kind| Case {
            weight: Tensor::ones([1], (kind, Device::Cpu)).set_requires_grad(true),
            bias: Tensor::zeros([1], (kind, Device::Cpu)).set_requires_grad(true),
            running_mean: Tensor::zeros([1], (kind, Device::Cpu)),
            running_var: Tensor::ones([1], (kind, Device::Cpu)),
            ..Case::new(&x.view([-1, 1]), kind)
        };
        let expected = case(Kind::Double).plain(false, activation);
        for (kind, tolerance) in [(Kind::Float, 1e-5), (Kind::Double, 1e-10)] {
            let found = case(kind).fused(BatchStatistics::Running, activation, Level::detected());
            found.assert_close(&expected, tolerance, &format!("{activation:?} {kind:?}"));
        }
    }
}

/// Large means beside a small variance, a column without any, and rows that differ by orders of magnitude.
#[test]
fn sums_lose_no_digits() {
    let x = numbers(&[517, 5], 0.37);
    let scales = Tensor::from_slice(&[1.0, 1.0, 0.0, 1e4, 1.0]);
    let means = Tensor::from_slice(&[0.0, 256.0, 3.0, -1e4, 1e-3]);
    let x = x * scales + means;
    // The first row, about which the first sums are taken, far from the others.
    let _ = x.narrow(0, 0, 1).narrow(1, 4, 1).fill_(1000.0);
    compare(&x, true, "uneven columns");
}

#[test]
fn bfloat16_is_calculated_in_single() {
    let x = numbers(&[65, 40], 0.37) * 2.0;
    for activation in ACTIVATIONS {
        for training in [true, false] {
            let expected = Case::new(&x, Kind::Double).plain(training, activation);
            let found = Case::new(&x, Kind::BFloat16).fused(statistics(training), activation, Level::detected());
            assert_eq!(found.named[0].1.kind(), Kind::BFloat16);
            // Half a unit in the last place of bfloat16 is a relative 2^-9 of the output; backward the rounding of
            // gradients comes on top.
            found.assert_close(&expected, 1.0 / 256.0, &format!("{activation:?}, training: {training}"));
        }
    }
}

#[test]
fn all_builds_and_numbers_of_threads_give_the_same_bits() {
    let x = numbers(&[257, 130], 0.37) * 3.0;
    for kind in [Kind::Float, Kind::BFloat16, Kind::Double] {
        for activation in ACTIVATIONS {
            let outcome = |level| Case::new(&x, kind).fused(BatchStatistics::Batch, activation, level);
            let threads = tch::get_num_threads();
            tch::set_num_threads(1);
            let expected = outcome(Level::Baseline);
            for level in Level::available() {
                for threads in [1, 2, 3] {
                    tch::set_num_threads(threads);
                    outcome(level).assert_same(&expected, &format!("{kind:?} {activation:?} {level:?} {threads}"));
                }
            }
            tch::set_num_threads(threads);
        }
    }
}

#[test]
fn rows_may_lie_anywhere() {
    let x = numbers(&[7, 33], 0.37).transpose(0, 1);
    compare(&x, true, "transposed");
    let case = Case {
        x: numbers(&[7, 33], 0.37).set_requires_grad(true),
        ..Case::new(&x, Kind::Double)
    };
    let options = BatchNormOptions {
        statistics: BatchStatistics::Batch,
        momentum: MOMENTUM,
        eps: EPS,
        activation: Activation::Elu,
    };
    let y = batch_norm(&case.x.transpose(0, 1), case.tensors(), options).unwrap();
    let again = batch_norm(&case.x.transpose(0, 1).contiguous(), case.tensors(), options).unwrap();
    assert!(y.equal(&again));
    // An expanded gradient.
    let of_view = Tensor::run_backward(&[y.sum(Kind::Double)], &[&case.x], false, false);
    let of_copy = Tensor::run_backward(&[again.sum(Kind::Double)], &[&case.x], false, false);
    assert!(of_view[0].equal(&of_copy[0]));
}

#[test]
fn nothing_is_differentiated_that_is_frozen() {
    let x = numbers(&[33, 5], 0.37);
    let options = BatchNormOptions {
        statistics: BatchStatistics::Batch,
        momentum: MOMENTUM,
        eps: EPS,
        activation: Activation::Elu,
    };
    // Only the weight.
    let case = Case::new(&x, Kind::Double);
    let (y, skip) = batch_norm_with_skip(&case.x.detach(), case.tensors(), options).unwrap();
    assert!(y.requires_grad() && !skip.requires_grad());
    (y * &case.dy).sum(Kind::Double).backward();
    let expected = Case::new(&x, Kind::Double).plain(true, Activation::Elu);
    assert!(
        (case.weight.grad() - &expected.named[2].1)
            .abs()
            .max()
            .double_value(&[])
            < 1e-10
    );

    // Nothing.
    let case = Case::new(&x, Kind::Double);
    let (y, _) = no_grad(|| batch_norm_with_skip(&case.x, case.tensors(), options)).unwrap();
    assert!(!y.requires_grad());

    // Only what goes past the layer has a gradient.
    let case = Case::new(&x, Kind::Double);
    let (_, skip) = batch_norm_with_skip(&case.x, case.tensors(), options).unwrap();
    (&skip * &case.dskip).sum(Kind::Double).backward();
    assert!(case.x.grad().equal(&case.dskip));
    assert!(!case.weight.grad().defined());
}

#[test]
fn errors_say_what_is_wrong() {
    let case = Case::new(&numbers(&[1, 5], 0.37), Kind::Float);
    let options = |statistics| BatchNormOptions {
        statistics,
        momentum: MOMENTUM,
        eps: EPS,
        activation: Activation::None,
    };
    let error = batch_norm(&case.x, case.tensors(), options(BatchStatistics::Batch)).unwrap_err();
    assert!(error.to_string().contains("more than one value per channel"), "{error}");
    let error = batch_norm(&case.x, BatchNormTensors::default(), options(BatchStatistics::Running)).unwrap_err();
    assert!(error.to_string().contains("running statistics"), "{error}");
}
