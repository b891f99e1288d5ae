//! Batch normalization over ranks, under real mpirun, against PyTorch's on the whole batch in one process.

mod common;

use common::on_ranks;
use dingo_spmd::spmd::World;
use dingo_spmd::torch_ext::{sync_batch_norm, BatchNormTensors, RankStatistics};
use std::sync::Arc;
use tch::{no_grad, Device, Kind, Tensor};

const CHANNELS: i64 = 7;
const MOMENTUM: f64 = 0.1;
const EPS: f64 = 1e-5;
const TOLERANCE: f64 = 1e-5;

/// A layer's tensors, each `[CHANNELS]`.
struct Layer {
    weight: Tensor,
    bias: Tensor,
    running_mean: Tensor,
    running_var: Tensor,
}

fn numbers(shape: &[i64], offset: f64) -> Tensor {
    let count = shape.iter().product::<i64>() as f64;
    Tensor::arange_start(offset, offset + count, (Kind::Double, Device::Cpu))
        .sin()
        .view(shape)
        .to_kind(Kind::Float)
}

impl Layer {
    fn new() -> Layer {
        Layer {
            weight: (numbers(&[CHANNELS], 3.0) + 2.0).set_requires_grad(true),
            bias: numbers(&[CHANNELS], 9.0).set_requires_grad(true),
            running_mean: numbers(&[CHANNELS], 1.0),
            running_var: numbers(&[CHANNELS], 2.0) + 2.0,
        }
    }

    fn whole(&self, x: &Tensor) -> Tensor {
        let (mean, var) = (Some(&self.running_mean), Some(&self.running_var));
        x.batch_norm(
            Some(&self.weight),
            Some(&self.bias),
            mean,
            var,
            true,
            MOMENTUM,
            EPS,
            false,
        )
    }

    fn synchronized(&self, x: &Tensor, ranks: &Arc<dyn RankStatistics>) -> Tensor {
        let tensors = BatchNormTensors {
            weight: Some(&self.weight),
            bias: Some(&self.bias),
            running_mean: Some(&self.running_mean),
            running_var: Some(&self.running_var),
            ..BatchNormTensors::default()
        };
        sync_batch_norm(x, tensors, MOMENTUM, EPS, ranks).unwrap()
    }
}

fn ranks(world: &World) -> Arc<dyn RankStatistics> {
    Arc::new(world.collectives())
}

fn assert_close(found: &Tensor, expected: &Tensor, what: &str) {
    assert_eq!(found.size(), expected.size(), "{what}");
    if found.numel() > 0 {
        let error = (found - expected).abs().max().double_value(&[]);
        let scale = expected.abs().max().double_value(&[]).max(1.0);
        assert!(error <= TOLERANCE * scale, "{what}: off by {error}, largest {scale}");
    }
}

/// Two layers one after the other, so that the gradient of the input matters, on this rank's rows and on all of them.
fn compare(world: &World, shape: &[i64], ends: &[i64], spread: &Tensor, what: &str) {
    let (start, rows) = (ends[world.rank], ends[world.rank + 1] - ends[world.rank]);
    let whole_x = (numbers(shape, 0.3) * spread).set_requires_grad(true);
    let local_x = no_grad(|| whole_x.narrow(0, start, rows).copy()).set_requires_grad(true);
    // Not linear in the output, so that the gradient differs from row to row.
    let targets = numbers(shape, 50.0);
    let loss = |y: &Tensor, targets: &Tensor| ((y - targets).square() * targets.cos()).sum(Kind::Float) / shape[0];

    let (whole, local) = ([Layer::new(), Layer::new()], [Layer::new(), Layer::new()]);
    let expected = whole[1].whole(&whole[0].whole(&whole_x).tanh());
    loss(&expected, &targets).backward();
    let ranks = ranks(world);
    let found = local[1].synchronized(&local[0].synchronized(&local_x, &ranks).tanh(), &ranks);
    // The callbacks must live as long as the graph, whoever else lets go of them.
    drop(ranks);
    loss(&found, &targets.narrow(0, start, rows)).backward();

    assert_close(&found, &expected.narrow(0, start, rows), &format!("{what}: output"));
    assert_close(
        &local_x.grad(),
        &whole_x.grad().narrow(0, start, rows),
        &format!("{what}: input gradient"),
    );
    for (layer, (whole, local)) in whole.iter().zip(&local).enumerate() {
        assert_close(
            &local.running_mean,
            &whole.running_mean,
            &format!("{what}: running mean {layer}"),
        );
        assert_close(
            &local.running_var,
            &whole.running_var,
            &format!("{what}: running variance {layer}"),
        );
        for (name, local, whole) in [
            ("weight", &local.weight, &whole.weight),
            ("bias", &local.bias, &whole.bias),
        ] {
            let mut sum = Vec::<f32>::try_from(local.grad()).unwrap();
            world.sum(&mut sum).unwrap();
            assert_close(
                &Tensor::from_slice(&sum),
                &whole.grad(),
                &format!("{what}: {name} gradient {layer}"),
            );
        }
        // The same bits on all ranks.
        let running = Vec::<f32>::try_from(Tensor::cat(&[&local.running_mean, &local.running_var], 0)).unwrap();
        let (mut least, mut most) = (running.clone(), running);
        world.min(&mut least).unwrap();
        world.max(&mut most).unwrap();
        assert_eq!(least, most, "{what}: running statistics differ between ranks");
    }
}

/// The first row of each rank, and the end: 17 rows as evenly as they go, and with one rank that has few or none.
fn shares(size: usize) -> [Vec<i64>; 2] {
    match size {
        1 => [vec![0, 17], vec![0, 17]],
        2 => [vec![0, 9, 17], vec![0, 17, 17]],
        3 => [vec![0, 6, 12, 17], vec![0, 1, 1, 17]],
        4 => [vec![0, 5, 9, 13, 17], vec![0, 9, 9, 14, 17]],
        size => panic!("no shares for {size} ranks"),
    }
}

#[test]
fn equals_batch_norm_on_the_whole_batch() {
    on_ranks("equals_batch_norm_on_the_whole_batch", &[1, 2, 3, 4], |world| {
        let ones = Tensor::ones([1], (Kind::Float, Device::Cpu));
        for ends in shares(world.size) {
            compare(world, &[17, CHANNELS], &ends, &ones, &format!("{ends:?}"));
            compare(
                world,
                &[17, CHANNELS, 5],
                &ends,
                &ones,
                &format!("{ends:?} with a length"),
            );
        }
    });
}

/// Means far from zero, and different from rank to rank: sums of squares would lose all digits.
#[test]
fn large_means_cost_no_digits() {
    on_ranks("large_means_cost_no_digits", &[4], |world| {
        let layer = Layer {
            weight: Tensor::ones([CHANNELS], (Kind::Float, Device::Cpu)),
            ..Layer::new()
        };
        // Whole numbers around 30000, exact in single precision; the variance by hand, in double.
        let offset = 30000.0;
        let whole = numbers(&[17, CHANNELS], 0.0).to_kind(Kind::Double) * 50.0;
        let whole = whole.round() + offset;
        let ends = &shares(4)[0];
        let (start, rows) = (ends[world.rank], ends[world.rank + 1] - ends[world.rank]);
        let local = whole.narrow(0, start, rows).to_kind(Kind::Float);
        let found = layer.synchronized(&local, &ranks(world));
        let (variance, mean) = whole.var_mean_dim(0, false, false);
        let expected = (whole - mean) / (variance + EPS).sqrt() + layer.bias.to_kind(Kind::Double);
        assert_close(&found.to_kind(Kind::Double), &expected.narrow(0, start, rows), "output");
    });
}

#[test]
fn half_precision_is_normalized_in_single() {
    on_ranks("half_precision_is_normalized_in_single", &[2], |world| {
        let ends = &shares(2)[0];
        let (start, rows) = (ends[world.rank], ends[world.rank + 1] - ends[world.rank]);
        let input = numbers(&[17, CHANNELS], 0.1).to_kind(Kind::BFloat16);
        let expected = Layer::new().whole(&input.to_kind(Kind::Float)).to_kind(Kind::BFloat16);
        let local = no_grad(|| input.narrow(0, start, rows).copy()).set_requires_grad(true);
        let found = Layer::new().synchronized(&local, &ranks(world));
        assert_eq!(found.kind(), Kind::BFloat16);
        // A rounding in bfloat16 may fall on the other side.
        let error = (&found - expected.narrow(0, start, rows)).abs().max().double_value(&[]);
        assert!(error <= 0.02, "{error}");
        found.square().sum(Kind::Float).backward();
        assert_eq!(local.grad().kind(), Kind::BFloat16);
    });
}

#[test]
fn one_value_per_channel_is_refused_on_all_ranks() {
    on_ranks("one_value_per_channel_is_refused_on_all_ranks", &[2], |world| {
        let input = numbers(&[world.rank as i64, CHANNELS], 0.0);
        let error = sync_batch_norm(&input, BatchNormTensors::default(), MOMENTUM, EPS, &ranks(world)).unwrap_err();
        assert!(error.to_string().contains("more than one value per channel"), "{error}");
    });
}

/// A layer below which nothing is trained needs no collective in the backward pass, and two sums in all otherwise.
#[test]
fn collectives_are_one_each_way() {
    on_ranks("collectives_are_one_each_way", &[2], |world| {
        for (trained_below, expected) in [(false, 1), (true, 2)] {
            let before = world.traffic().collectives();
            let input = numbers(&[3, CHANNELS], world.rank as f64).set_requires_grad(trained_below);
            Layer::new()
                .synchronized(&input, &ranks(world))
                .square()
                .sum(Kind::Float)
                .backward();
            assert_eq!(world.traffic().collectives() - before, expected);
        }
    });
}

/// What a collective says when it fails arrives as an error, forward and backward.
#[test]
fn errors_of_collectives_arrive() {
    struct Failing {
        forward: bool,
    }
    impl RankStatistics for Failing {
        fn all_gather(&self, local: &Tensor) -> Result<Tensor, String> {
            if self.forward {
                return Err("rank 3 is gone".into());
            }
            Ok(local.unsqueeze(0))
        }
        fn all_reduce_sum(&self, _values: &Tensor) -> Result<(), String> {
            Err("rank 4 is gone".into())
        }
    }
    let input = numbers(&[3, CHANNELS], 0.0).set_requires_grad(true);
    let failing = |forward| -> Arc<dyn RankStatistics> { Arc::new(Failing { forward }) };
    let normalize = |ranks| sync_batch_norm(&input, BatchNormTensors::default(), MOMENTUM, EPS, &ranks);
    assert!(normalize(failing(true))
        .unwrap_err()
        .to_string()
        .contains("rank 3 is gone"));
    let output = normalize(failing(false)).unwrap().sum(Kind::Float);
    let error = Tensor::f_run_backward(&[output], &[&input], false, false).unwrap_err();
    assert!(error.to_string().contains("rank 4 is gone"), "{error}");

    let wrong = Tensor::ones([CHANNELS + 1], (Kind::Float, Device::Cpu));
    let tensors = BatchNormTensors {
        weight: Some(&wrong),
        ..BatchNormTensors::default()
    };
    let error = sync_batch_norm(&input, tensors, MOMENTUM, EPS, &failing(false)).unwrap_err();
    assert!(error.to_string().contains("[8]"), "{error}");
}
