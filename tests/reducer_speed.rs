//! Benchmarks of the gradient reduction, under real mpirun. They measure time, so they run only when asked, on an idle
//! machine: `cargo test --release --test reducer_speed -- --ignored --nocapture --test-threads 1`.

mod common;

use common::on_ranks;
use dingo_spmd::spmd::{GradientReducer, ReducerOptions, World};
use std::time::{Duration, Instant};
use tch::{Device, Kind, Tensor};

/// With a slow network the step hides at least half of the smaller of computing and communicating. (What cannot be hidden
/// where ranks have no core to spare is the adding up, so the delays are such that the network dominates.)
#[test]
#[ignore = "measures time"]
fn overlap_hides_a_slow_network() {
    on_ranks("overlap_hides_a_slow_network", &[2], |world| {
        for bucket_delay in [5, 10, 20].map(Duration::from_millis) {
            let time = |reduce: bool, overlap: bool| step_time(world, bucket_delay, reduce, overlap);
            let compute = time(false, true);
            let serial = time(true, false);
            let overlapped = time(true, true);
            let communicate = serial - compute;
            let hidden = serial - overlapped;
            if world.is_root() {
                println!(
                    "{bucket_delay:?} per bucket: compute {:.1} ms, communicate {:.1} ms, step {:.1} ms, hidden {:.1} ms",
                    1e3 * compute,
                    1e3 * communicate,
                    1e3 * overlapped,
                    1e3 * hidden
                );
            }
            assert!(hidden >= 0.5 * compute.min(communicate));
        }
    });
}

/// The seconds of a step, on the slowest rank.
fn step_time(world: &World, artificial_delay: Duration, reduce: bool, overlap: bool) -> f64 {
    const STEPS: usize = 20;
    let options = (Kind::Float, Device::Cpu);
    let parameters: Vec<Tensor> = (0..10)
        .map(|_| (Tensor::randn([512, 512], options) * 0.05).set_requires_grad(true))
        .collect();
    let input = Tensor::randn([512, 512], options);
    let bucket_bytes = 1 << 20;
    let reducer_options = ReducerOptions {
        bucket_bytes,
        first_bucket_bytes: bucket_bytes,
        overlap,
        artificial_delay,
        local_norm: false,
    };
    let mut reducer = GradientReducer::with_options(world, &parameters, &reducer_options).unwrap();
    let mut step = || {
        reducer.zero().unwrap();
        let loss = parameters
            .iter()
            .fold(input.shallow_clone(), |x, weight| x.matmul(weight).tanh())
            .sum(None);
        reducer.prepare(reduce).unwrap();
        loss.backward();
        if reduce {
            reducer.finish().unwrap();
        }
    };
    step();
    world.barrier().unwrap();
    // The fastest step: other programs can only slow one down.
    let mut fastest = f64::INFINITY;
    for _ in 0..STEPS {
        let begin = Instant::now();
        step();
        fastest = fastest.min(begin.elapsed().as_secs_f64());
    }
    world.max_of(fastest).unwrap()
}

/// What the naps of the communication thread cost: a reduction without any computing, on the thread and by a blocking
/// call.
#[test]
#[ignore = "measures time"]
fn reduction_alone() {
    on_ranks("reduction_alone", &[2], |world| {
        let parameters: Vec<Tensor> = (0..100)
            .map(|_| Tensor::zeros([512, 512], (Kind::Float, Device::Cpu)).set_requires_grad(true))
            .collect();
        for overlap in [true, false] {
            let options = ReducerOptions {
                overlap,
                ..ReducerOptions::default()
            };
            let mut reducer = GradientReducer::with_options(world, &parameters, &options).unwrap();
            let mut times = Vec::new();
            for _ in 0..20 {
                world.barrier().unwrap();
                reducer.prepare(true).unwrap();
                times.push(reducer.finish().unwrap().waited);
            }
            times.sort();
            if world.is_root() {
                println!(
                    "100 MB in {} buckets, overlap {overlap}: median {:?}",
                    reducer.buckets(),
                    times[10]
                );
            }
        }
    });
}
