//! The fastest large matrix product of the machine, as the measure of what a step could reach.

use crate::spmd::World;
use anyhow::Result;
use serde::Serialize;
use std::time::Instant;
use tch::{Device, Kind, Tensor};

/// Rows and columns of the matrices.
const SIZE: i64 = 2048;
/// Products that count; the fastest is taken.
const REPEATS: usize = 5;

/// Operations per second of all ranks together, each with its own threads, all at the same time.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Peak {
    pub by_library: Vec<Speed>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Speed {
    pub library: String,
    pub flops_per_second: f64,
}

impl Peak {
    /// Of matrices of single precision, and with `short` of that type too. All ranks call this together.
    ///
    /// # Errors
    /// What libtorch says.
    pub fn measure(world: &World, short: Option<Kind>) -> Result<Peak> {
        let mut by_library = vec![Speed {
            library: "libtorch".into(),
            flops_per_second: of_kind(world, Kind::Float)?,
        }];
        if let Some(kind) = short {
            by_library.push(Speed {
                library: format!("libtorch, {kind:?}"),
                flops_per_second: of_kind(world, kind)?,
            });
        }
        Ok(Peak { by_library })
    }

    /// Of two measurements, the better one for each library.
    pub fn or_better(mut self, other: Peak) -> Peak {
        for (speed, other) in self.by_library.iter_mut().zip(other.by_library) {
            speed.flops_per_second = speed.flops_per_second.max(other.flops_per_second);
        }
        self
    }

    pub fn best(&self) -> f64 {
        let speeds = self.by_library.iter().map(|speed| speed.flops_per_second);
        speeds.fold(0.0, f64::max)
    }
}

fn of_kind(world: &World, kind: Kind) -> Result<f64> {
    let matrix = || Tensor::f_ones([SIZE, SIZE], (kind, Device::Cpu));
    let (left, right, product) = (matrix()?, matrix()?, matrix()?);
    let _no_gradients = tch::no_grad_guard();
    world.barrier()?;
    let mut fastest = f64::INFINITY;
    // The first one also makes the libraries ready.
    for repeat in 0..=REPEATS {
        let begin = Instant::now();
        left.f_mm_out(&product, &right).map(drop)?;
        if repeat > 0 {
            fastest = fastest.min(begin.elapsed().as_secs_f64());
        }
    }
    let operations = 2.0 * (SIZE as f64).powi(3);
    Ok(world.sum_of(operations / fastest)?)
}
