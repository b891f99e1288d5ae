//! What is known of one configuration, and how it is told.

use super::peak::Peak;
use super::step_time::StepTime;
use super::subject::Trainee;
use super::{flops::GemmFlops, memory::Memory, step_time, throughput};
use super::{BenchRequest, Configuration, Subject, Variant};
use crate::spmd::World;
use anyhow::Result;
use serde::Serialize;
use std::fmt;
use tch::Kind;

/// All of one configuration. Times are in seconds, memory in bytes; what is not said to be a rank's is of all ranks together.
#[derive(Debug, Clone, Serialize)]
pub struct Measurement {
    pub settings: String,
    pub synthetic: bool,
    pub variant: Variant,
    pub ranks: usize,
    pub nodes: usize,
    /// Of the network, on each rank.
    pub threads: usize,
    pub batch_size: usize,
    /// Samples of an optimizer step: the batch size times accumulated passes.
    pub effective_batch_size: usize,
    pub first_layer_frozen: bool,
    pub steps: usize,
    pub warm_up: usize,
    pub step: StepTime,
    /// Samples per second: of the steps above, where the data are there.
    pub network_speed: f64,
    /// Of the data pipeline when nothing else works; none for synthetic data.
    pub data_speed: Option<f64>,
    /// Of training, with network and data pipeline on the same cores.
    pub training_speed: Option<f64>,
    /// Of the epoch below.
    pub samples: u64,
    pub epoch_time: f64,
    /// Training samples of the dataset.
    pub dataset_len: Option<usize>,
    /// Of a step on rank 0.
    pub aten_calls: u64,
    pub flops: GemmFlops,
    pub peak: Peak,
    /// Of the rank that has most.
    pub memory: Memory,
}

impl Subject {
    /// Builds the network of a configuration and measures all of it. All ranks call this together.
    ///
    /// # Errors
    /// As a training with these settings.
    pub fn measure(&self, world: &World, configuration: &Configuration, request: &BenchRequest) -> Result<Measurement> {
        let mut trainee = self.trainee(world, configuration)?;
        let data_speed = match &trainee.loader {
            Some(loader) => Some(throughput::of_data(world, loader, trainee.batch_size())?),
            None => None,
        };
        let batches = world.agree(trainee.kept_batches(world))?;
        let (warm_up, steps) = (request.warm_up, request.steps);
        let short = trainee.settings.train.stages[0]
            .automatic_mixed_precision
            .then_some(Kind::BFloat16);
        // Before and after the steps: other work on the machine comes and goes.
        let peak_before = Peak::measure(world, short)?;
        let step = step_time::measure(world, &mut trainee, &batches, warm_up, steps)?;
        let peak = Peak::measure(world, short)?.or_better(peak_before);
        let aten_calls = step_time::aten_calls(world, &mut trainee, &batches)?;
        drop(batches);
        let training_speed = throughput::of_training(world, &mut trainee, warm_up.min(steps), steps)?;
        let effective = trainee.effective_batch_size();
        let network_speed = effective as f64 / step.time.median;
        Ok(Measurement {
            settings: request.settings.display().to_string(),
            synthetic: request.synthetic,
            variant: configuration.variant,
            ranks: world.size,
            nodes: world.nodes,
            threads: tch::get_num_threads() as usize,
            batch_size: trainee.batch_size(),
            effective_batch_size: effective,
            first_layer_frozen: first_layer_is_frozen(&trainee),
            steps,
            warm_up,
            network_speed,
            data_speed,
            training_speed,
            samples: request.samples,
            epoch_time: request.samples as f64 / network_speed,
            dataset_len: trainee.dataset_len(),
            aten_calls,
            flops: GemmFlops::of_step(trainee.model.state(), effective),
            peak,
            memory: largest(world, Memory::now())?,
            step,
        })
    }
}

fn first_layer_is_frozen(trainee: &Trainee) -> bool {
    let mut first_layer = (trainee.model.state().named_parameters()).filter(|(name, _)| name.contains("layers_rb"));
    first_layer.all(|(_, weight)| !weight.requires_grad())
}

fn largest(world: &World, memory: Memory) -> Result<Memory> {
    let most = |bytes: Option<u64>| {
        world
            .max_of(bytes.unwrap_or(0))
            .map(|bytes| Some(bytes).filter(|&bytes| bytes > 0))
    };
    Ok(Memory {
        anonymous: most(memory.anonymous)?,
        peak: most(memory.peak)?,
    })
}

impl Measurement {
    /// Operations per second.
    pub fn flops_per_second(&self) -> f64 {
        self.flops.total() as f64 / self.step.time.median
    }

    /// The share of the measured peak, from 0 to 1: the model FLOPs utilization.
    pub fn share_of_peak(&self) -> f64 {
        self.flops_per_second() / self.peak.best()
    }
}

impl fmt::Display for Measurement {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        self.write_heading(f)?;
        self.write_times(f)?;
        self.write_work(f)?;
        self.write_costs(f)
    }
}

impl Measurement {
    fn write_heading(&self, f: &mut fmt::Formatter) -> fmt::Result {
        writeln!(
            f,
            "Benchmark of {}: {} on {}, {}, batch size {} ({} a rank), variant {}, {}, first layer {}",
            self.settings,
            plural(self.ranks, "rank"),
            plural(self.nodes, "node"),
            plural(self.threads, "thread") + " a rank",
            self.batch_size,
            self.batch_size / self.ranks,
            self.variant,
            if self.synthetic {
                "synthetic data"
            } else {
                "the dataset's data"
            },
            if self.first_layer_frozen { "frozen" } else { "trained" },
        )
    }

    fn write_times(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let milliseconds = |seconds: f64| seconds * 1e3;
        let StepTime { time, parts, .. } = &self.step;
        writeln!(
            f,
            "step time: median {:.2} ms, quartiles {:.2} and {:.2} ms; slowest rank {} with {:.2} ms ({} after {} of warm-up)",
            milliseconds(time.median),
            milliseconds(time.first),
            milliseconds(time.third),
            self.step.slowest_rank,
            milliseconds(self.step.slowest_rank_median),
            plural(self.steps, "step"),
            self.warm_up,
        )?;
        writeln!(
            f,
            "of which: forward {:.2} ms, backward {:.2} ms, waiting for the reduction {:.2} ms, update {:.2} ms",
            milliseconds(parts.forward),
            milliseconds(parts.backward),
            milliseconds(parts.reduction),
            milliseconds(parts.update),
        )?;
        writeln!(f, "network alone: {:.1} samples/s", self.network_speed)?;
        if let (Some(data), Some(training)) = (self.data_speed, self.training_speed) {
            writeln!(f, "data pipeline alone: {data:.1} samples/s")?;
            writeln!(f, "training, both on the same cores: {training:.1} samples/s")?;
        }
        write!(f, "epoch time: {} for {} samples", Time(self.epoch_time), self.samples)?;
        if let Some(samples) = self.dataset_len {
            let time = samples as f64 / self.network_speed;
            write!(f, ", {} for the dataset's {samples}", Time(time))?;
        }
        writeln!(f)
    }

    fn write_work(&self, f: &mut fmt::Formatter) -> fmt::Result {
        writeln!(f, "ATen calls per step: {}", self.aten_calls)?;
        let GemmFlops {
            first_layer,
            embedding,
            flow,
        } = self.flops;
        let [total, first_layer, embedding, flow] =
            [self.flops.total(), first_layer, embedding, flow].map(|operations| operations as f64 / 1e9);
        let digits = if total < 10.0 { 4 } else { 1 };
        writeln!(
            f,
            "matrix products per step: {total:.digits$} GFLOP (first layer {first_layer:.digits$}, embedding \
             {embedding:.digits$}, flow {flow:.digits$})"
        )?;
        let peaks: Vec<String> = (self.peak.by_library.iter())
            .map(|speed| format!("{} {:.1}", speed.library, speed.flops_per_second / 1e9))
            .collect();
        writeln!(
            f,
            "achieved: {:.1} GFLOP/s, {:.1}% of the peak that a large matrix product reached in this run ({} GFLOP/s)",
            self.flops_per_second() / 1e9,
            100.0 * self.share_of_peak(),
            peaks.join(", "),
        )
    }

    fn write_costs(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let megabytes =
            |bytes: Option<u64>| bytes.map_or("unknown".into(), |bytes| format!("{:.0} MB", bytes as f64 / 1e6));
        writeln!(
            f,
            "memory of a rank: RssAnon {}, peak RSS {}",
            megabytes(self.memory.anonymous),
            megabytes(self.memory.peak)
        )?;
        let communication = &self.step.communication;
        write!(
            f,
            "communication per step: {:.0} collectives, {:.0} bytes; ",
            communication.collectives, communication.bytes
        )?;
        match communication.hidden_share {
            Some(share) => write!(
                f,
                "{:.0}% of the gradients' way hidden behind the backward pass",
                100.0 * share
            ),
            None => write!(f, "nothing to hide"),
        }
    }
}

/// Seconds in the unit that suits them.
struct Time(f64);

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self.0 {
            seconds if seconds < 120.0 => write!(f, "{seconds:.2} s"),
            seconds if seconds < 7200.0 => write!(f, "{:.2} min", seconds / 60.0),
            seconds => write!(f, "{:.2} h", seconds / 3600.0),
        }
    }
}

fn plural(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}
