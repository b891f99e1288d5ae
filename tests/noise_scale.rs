//! The gradient noise scale where it is known: a linear model, whose gradients are Gaussian, under real mpirun.

mod common;

use common::on_ranks;
use dingo_spmd::spmd::{GradientReducer, ReducerOptions, World, RANK_SLOTS};
use dingo_spmd::torch_ext::square_norm;
use dingo_spmd::train::{Estimate, PartNorms};
use tch::{Device, Kind, Tensor};

const WIDTH: i64 = 40;
const BATCH_SIZE: usize = 48;
const STEPS: i64 = 2000;

/// A sample's loss is w x with x Gaussian about G, so x is its gradient. |G|² is 40 · 0.09 = 3.6, and tr Σ the sum of the
/// variances 1 + i/10: 118.
const GRADIENT: f64 = 0.3;

fn deviations() -> Tensor {
    (Tensor::arange(WIDTH, (Kind::Float, Device::Cpu)) / 10.0 + 1.0).sqrt()
}

/// Trains as an epoch does, with this many passes a step; the loss is multiplied by `scale`, as a gradient scaler does.
fn estimate(world: &World, passes: usize, scale: f64) -> Estimate {
    tch::manual_seed(100 + world.rank as i64);
    let weights = Tensor::zeros([WIDTH], (Kind::Float, Device::Cpu)).set_requires_grad(true);
    let options = ReducerOptions {
        local_norm: true,
        ..ReducerOptions::default()
    };
    let mut reducer = GradientReducer::with_options(world, &[weights.shallow_clone()], &options).unwrap();
    let mut norms = PartNorms::new(world.size, passes, BATCH_SIZE).unwrap();
    let samples = (BATCH_SIZE / passes / world.size) as i64;
    for _ in 0..STEPS {
        reducer.zero().unwrap();
        for pass in 0..passes {
            let x = Tensor::randn([samples, WIDTH], (Kind::Float, Device::Cpu)) * deviations() + GRADIENT;
            let loss = x.matmul(&weights).sum(Kind::Float) * scale / BATCH_SIZE as f64;
            reducer.prepare(pass + 1 == passes).unwrap();
            let mut told = [0.0; RANK_SLOTS];
            told[0] = norms.own();
            if pass + 1 == passes {
                reducer.set_rank_values(&told).unwrap();
            }
            loss.backward();
            norms.pass(reducer.flat_gradients()).unwrap();
        }
        let reduced = reducer.finish().unwrap();
        norms.hear(&Vec::<f64>::try_from(reduced.of_ranks.select(1, 0).to_kind(Kind::Double)).unwrap());
        let whole = square_norm(reducer.flat_gradients(), 1.0 / scale).unwrap().square;
        norms.step(whole, BATCH_SIZE as u64, reduced.local_square_norm, scale);
    }
    norms.noise_scale.estimate().unwrap()
}

fn assert_right(estimate: Estimate, what: &str) {
    let expected = 118.0 / 3.6;
    println!("{what}: {estimate:?}, expected {expected}");
    let error = (estimate.noise_scale - expected).abs();
    assert!(error < 0.1 * expected, "{what}: {estimate:?}");
    assert!(error < 4.0 * estimate.standard_error, "{what}: {estimate:?}");
    assert!(estimate.standard_error < 0.05 * expected, "{what}: {estimate:?}");
}

#[test]
fn ranks_and_passes_find_the_known_noise_scale() {
    on_ranks("ranks_and_passes_find_the_known_noise_scale", &[1, 2, 4], |world| {
        let passes: &[usize] = if world.size == 1 { &[2, 4] } else { &[1, 3] };
        for &passes in passes {
            let what = format!("{} ranks, {passes} passes", world.size);
            assert_right(estimate(world, passes, 1.0), &what);
        }
        let what = format!("{} ranks, scaled", world.size);
        assert_right(estimate(world, 2, 1024.0), &what);
    });
}

#[test]
fn one_part_has_nothing_to_compare() {
    assert!(PartNorms::new(1, 1, BATCH_SIZE).is_none());
}
