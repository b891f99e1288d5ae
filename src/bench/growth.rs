//! What a larger network, batch or strain costs: step time against one size at a time, on synthetic data.

use super::{step_time, BenchRequest, Configuration, GemmFlops, Subject, Variant};
use crate::settings::Settings;
use crate::spmd::World;
use anyhow::Result;
use std::fmt;

/// What each size is multiplied by, but for the number of detectors.
const FACTORS: [usize; 2] = [2, 3];
const DETECTORS: [usize; 3] = [1, 2, 3];

/// A size that the time of a step depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Size {
    FlowSteps,
    HiddenDim,
    Batch,
    Bins,
    Detectors,
}

const SIZES: [Size; 5] = [
    Size::FlowSteps,
    Size::HiddenDim,
    Size::Batch,
    Size::Bins,
    Size::Detectors,
];

impl Size {
    fn of(self, settings: &mut Settings) -> &mut usize {
        let model = &mut settings.train.model;
        let input_dims = model.embedding.input_dims.get_or_insert_default();
        match self {
            Size::FlowSteps => &mut model.posterior.num_flow_steps,
            Size::HiddenDim => &mut model.posterior.base_transform.hidden_dim,
            Size::Batch => &mut settings.train.stages[0].batch_size,
            Size::Bins => &mut input_dims[2],
            Size::Detectors => &mut input_dims[0],
        }
    }

    /// Other values than the settings' own.
    fn others(self, base: usize) -> Vec<usize> {
        match self {
            Size::Detectors => DETECTORS.into_iter().filter(|&detectors| detectors != base).collect(),
            _ => FACTORS.iter().map(|factor| factor * base).collect(),
        }
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(match self {
            Size::FlowSteps => "flow steps",
            Size::HiddenDim => "hidden size of the flow",
            Size::Batch => "batch size",
            Size::Bins => "frequency bins",
            Size::Detectors => "detectors",
        })
    }
}

/// A row of the table.
#[derive(Debug, Clone)]
struct Cost {
    what: String,
    seconds: f64,
    flops: GemmFlops,
    /// The largest part of the step's time, and its share.
    dominant: (&'static str, f64),
}

/// Measures the settings' network, then others that differ from it in one size; reports a table. All ranks call this
/// together.
///
/// # Errors
/// As a measurement of the network alone.
pub fn growth(world: &World, request: &BenchRequest) -> Result<()> {
    let request = BenchRequest {
        synthetic: true,
        ..request.clone()
    };
    let base = Subject::open(world, &request)?.settings().clone();
    let configuration = |settings: &Settings| Configuration {
        variant: request.variants.first().copied().unwrap_or(Variant::AsSet),
        batch_size: settings.train.stages[0].batch_size,
        freeze: request.freeze,
    };
    let mut base = base;
    if let Some(&batch_size) = request.batch_sizes.first() {
        *Size::Batch.of(&mut base) = batch_size;
    }
    let first = cost(world, &base, &configuration(&base), &request, "as set".into())?;
    log::info!("{}", heading());
    log::info!("{}", first.row(&first));
    for size in SIZES {
        let value = *size.of(&mut base);
        for other in size.others(value) {
            let mut settings = base.clone();
            *size.of(&mut settings) = other;
            let what = format!("{size} {other} (not {value})");
            let cost = cost(world, &settings, &configuration(&settings), &request, what)?;
            log::info!("{}", cost.row(&first));
        }
    }
    Ok(())
}

fn cost(
    world: &World,
    settings: &Settings,
    configuration: &Configuration,
    request: &BenchRequest,
    what: String,
) -> Result<Cost> {
    let mut trainee = Subject::synthetic(settings.clone()).trainee(world, configuration)?;
    let batches = trainee.kept_batches(world)?;
    let step = step_time::measure(world, &mut trainee, &batches, request.warm_up, request.steps)?;
    let parts = step.parts;
    let total = parts.total();
    let dominant = [
        ("forward", parts.forward),
        ("backward", parts.backward),
        ("reduction", parts.reduction),
        ("update", parts.update),
    ];
    let dominant = dominant
        .into_iter()
        .max_by(|a, b| a.1.total_cmp(&b.1))
        .unwrap_or_default();
    Ok(Cost {
        what,
        seconds: step.time.median,
        flops: GemmFlops::of_step(trainee.model.state(), trainee.effective_batch_size()),
        dominant: (dominant.0, dominant.1 / total),
    })
}

fn heading() -> String {
    format!(
        "{:<42} {:>10} {:>8} {:>9} {:>8}  {}",
        "size", "step [ms]", "x time", "GFLOP", "x FLOP", "most of the time; FLOP in first layer, embedding, flow"
    )
}

impl Cost {
    fn row(&self, base: &Cost) -> String {
        let total = self.flops.total() as f64;
        let share = |operations: u64| 100.0 * operations as f64 / total;
        format!(
            "{:<42} {:>10.2} {:>8.2} {:>9.2} {:>8.2}  {} {:.0}%; {:.0}%, {:.0}%, {:.0}%",
            self.what,
            self.seconds * 1e3,
            self.seconds / base.seconds,
            total / 1e9,
            total / base.flops.total() as f64,
            self.dominant.0,
            100.0 * self.dominant.1,
            share(self.flops.first_layer),
            share(self.flops.embedding),
            share(self.flops.flow),
        )
    }
}
