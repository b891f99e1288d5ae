//! The fastest large matrix product of the machine, as the measure of what a step could reach.

use crate::spmd::World;
use crate::torch_ext::{choose_matrix_library, chosen_matrix_library, product, MatrixLibrary};
use anyhow::Result;
use serde::Serialize;
use std::time::Instant;
use tch::{Device, Kind, Tensor};

/// Rows and columns of the matrices.
const SIZE: i64 = 2048;
/// Products that count; the fastest is taken.
const REPEATS: usize = 5;
/// Seconds after which there are no more, so that slow or busy machines are not kept.
const PATIENCE: f64 = 1.0;

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
    /// Of matrices of single precision by every library that libtorch has, and with `short` of that type too. All ranks call
    /// this together.
    ///
    /// # Errors
    /// What libtorch says.
    pub fn measure(world: &World, short: Option<Kind>) -> Result<Peak> {
        let mut by_library = Vec::new();
        let chosen = chosen_matrix_library();
        for library in MatrixLibrary::ALL.into_iter().filter(|library| library.is_there()) {
            choose_matrix_library(library);
            let multiply = |a: &Tensor, b: &Tensor, out: &mut Tensor| Ok(product(a, b, out)?);
            by_library.push(Speed {
                library: library.name().into(),
                flops_per_second: fastest(world, Kind::Float, &multiply)?,
            });
        }
        choose_matrix_library(chosen);
        if let Some(kind) = short {
            let multiply = |a: &Tensor, b: &Tensor, out: &mut Tensor| Ok(a.f_mm_out(out, b).map(drop)?);
            by_library.push(Speed {
                library: format!("{kind:?}"),
                flops_per_second: fastest(world, kind, &multiply)?,
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

type Multiply<'a> = &'a dyn Fn(&Tensor, &Tensor, &mut Tensor) -> Result<()>;

/// Of the fastest product.
fn fastest(world: &World, kind: Kind, multiply: Multiply) -> Result<f64> {
    let matrix = || Tensor::f_ones([SIZE, SIZE], (kind, Device::Cpu));
    let (left, right, mut product) = (matrix()?, matrix()?, matrix()?);
    let _no_gradients = tch::no_grad_guard();
    world.barrier()?;
    // Makes the library ready.
    multiply(&left, &right, &mut product)?;
    let (mut fastest, started) = (f64::INFINITY, Instant::now());
    for repeat in 0..REPEATS {
        if repeat > 0 && started.elapsed().as_secs_f64() > PATIENCE {
            break;
        }
        let begin = Instant::now();
        multiply(&left, &right, &mut product)?;
        fastest = fastest.min(begin.elapsed().as_secs_f64());
    }
    let operations = 2.0 * (SIZE as f64).powi(3);
    Ok(world.sum_of(operations / fastest)?)
}
