//! Time and operator calls of one coupling's splines, by the kernel and by operations:
//! `cargo test --release --lib spline_speed -- --ignored --nocapture`.

use super::RationalQuadraticSpline;
use crate::torch_ext::{threads::limit_this_thread, Direction, OpCounter};
use std::time::Instant;
use tch::{Device, Kind, Tensor};

/// At the size of Dingo's usual networks.
const BATCH: i64 = 512;
const BINS: usize = 8;
const TRANSFORMED: [i64; 5] = [0, 2, 4, 6, 8];
const ROUNDS: usize = 300;

struct Coupling {
    spline: RationalQuadraticSpline,
    transformed: Tensor,
    inputs: Tensor,
    parameters: Tensor,
}

impl Coupling {
    fn new() -> Coupling {
        let leaf = |columns| Tensor::randn([BATCH, columns], (Kind::Float, Device::Cpu)).set_requires_grad(true);
        let spline = RationalQuadraticSpline::new(BINS, 2.0).unwrap();
        Coupling {
            inputs: leaf(10),
            parameters: leaf((TRANSFORMED.len() * spline.num_parameters()) as i64),
            transformed: Tensor::from_slice(&TRANSFORMED),
            spline,
        }
    }

    /// Milliseconds of forward and of backward, and the operators called.
    fn run(&self, by_operations: bool) -> (f64, f64, u64) {
        let counter = OpCounter::start().unwrap();
        let start = Instant::now();
        let (direction, scale) = (Direction::Forward, 0.1);
        let (x, places, parameters) = (&self.inputs, &self.transformed, &self.parameters);
        let (outputs, logabsdet) = match by_operations {
            true => self
                .spline
                .transform_by_operations(direction, x, places, parameters, scale),
            false => self.spline.transform(direction, x, places, parameters, scale),
        }
        .unwrap();
        let forward = start.elapsed().as_secs_f64() * 1e3;
        let calls = counter.calls();
        // The sum and its gradient are no part of the spline, but small.
        let loss = outputs.sum(Kind::Float) + logabsdet.sum(Kind::Float);
        let (start, before) = (Instant::now(), counter.calls());
        Tensor::run_backward(&[loss], &[x, parameters], false, false);
        (
            forward,
            start.elapsed().as_secs_f64() * 1e3,
            calls + counter.calls() - before,
        )
    }
}

#[test]
#[ignore = "measures"]
fn spline_speed() {
    let coupling = Coupling::new();
    for threads in [1, 2] {
        limit_this_thread(threads);
        let mut times = [[vec![], vec![]], [vec![], vec![]]];
        let mut calls = [0, 0];
        for _ in 0..ROUNDS {
            for by_operations in [false, true] {
                let (forward, backward, operators) = coupling.run(by_operations);
                times[usize::from(by_operations)][0].push(forward);
                times[usize::from(by_operations)][1].push(backward);
                calls[usize::from(by_operations)] = operators;
            }
        }
        for ((name, times), calls) in ["kernel", "operations"].iter().zip(&mut times).zip(calls) {
            let [forward, backward] = times.each_mut().map(|times| {
                times.sort_by(f64::total_cmp);
                format!("{:.3} / {:.3} ms", times[0], times[ROUNDS / 2])
            });
            println!(
                "{threads} threads, {name}: forward {forward}, backward {backward} (least / median), {calls} ATen calls"
            );
        }
    }
}
