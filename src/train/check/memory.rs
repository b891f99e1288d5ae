//! How much memory a rank will want: an estimate, to be told apart from a measurement.

use super::plan::{DataPlan, StagePlan};
use crate::posterior::PosteriorModel;
use crate::settings::{OptimizerSettings, TrainSettings};
use crate::train::{Corpus, Progress};

/// Bytes of a number in single precision.
const FLOAT: u64 = 4;

/// Arrays as wide as a layer's output that are there at a time, per sample: what its backward pass keeps, and gradients. With
/// the two batches below it makes 132 kB of a sample in a network of 5 flow steps where a run was measured to grow by 96.
const ARRAYS_PER_LAYER: u64 = 2;

/// Batches of network inputs that are there at a time: one in use, one made meanwhile.
const BATCHES: u64 = 2;

/// In bytes, of the most demanding stage still to come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryEstimate {
    pub parameters: u64,
    /// In flat buckets, which `.grad` is a view of.
    pub gradients: u64,
    pub optimizer: u64,
    /// What a forward pass keeps for the backward pass.
    pub activations: u64,
    /// Inputs of the network.
    pub batches: u64,
    /// Waveforms that are not left on disk, with the dataset's parameters and noise.
    pub data: u64,
}

impl MemoryEstimate {
    pub fn total(&self) -> u64 {
        self.parameters + self.gradients + self.optimizer + self.activations + self.batches + self.data
    }

    pub(super) fn new(
        settings: &TrainSettings,
        corpus: &Corpus,
        model: &dyn PosteriorModel,
        data: &DataPlan,
        stages: &[StagePlan],
        progress: Progress,
    ) -> MemoryEstimate {
        let left = &stages[progress.stage.min(stages.len() - 1)..];
        let parameters: u64 = model
            .state()
            .parameters()
            .iter()
            .map(|p| p.numel() as u64 * FLOAT)
            .sum();
        let learnable = left.iter().map(|stage| stage.learnable_parameters as u64 * FLOAT);
        let optimizer = left.iter().map(|stage| {
            optimizer_tensors(&settings.stages[stage.number].optimizer) * stage.learnable_parameters as u64 * FLOAT
        });
        let per_sample = activations_per_sample(model);
        let activations = left.iter().map(|stage| {
            let halved = if stage.mixed_precision { 2 } else { 1 };
            stage.batch_size_per_rank as u64 * per_sample / halved
        });
        let input = corpus.detectors().len() as u64 * 3 * data.bins as u64 * FLOAT;
        let largest_batch = left.iter().map(|stage| stage.batch_size_per_rank as u64).max();
        let [waveforms, _] = corpus.dataset.waveform_bytes();
        let parameter_table = data.samples as u64 * corpus.dataset.parameter_names().len() as u64 * 8;
        MemoryEstimate {
            parameters,
            gradients: learnable.max().unwrap_or(0),
            optimizer: optimizer.max().unwrap_or(0),
            activations: activations.max().unwrap_or(0),
            batches: BATCHES * largest_batch.unwrap_or(0) * input,
            data: parameter_table + if data.is_mapped { 0 } else { waveforms },
        }
    }
}

/// Tensors of a parameter's size that an optimizer keeps for it.
pub(super) fn optimizer_tensors(optimizer: &OptimizerSettings) -> u64 {
    match *optimizer {
        OptimizerSettings::Adam { amsgrad, .. } | OptimizerSettings::AdamW { amsgrad, .. } => 2 + u64::from(amsgrad),
        OptimizerSettings::Sgd { momentum, .. } => u64::from(momentum != 0.0),
        OptimizerSettings::RmsProp { momentum, centered, .. } => 1 + u64::from(momentum != 0.0) + u64::from(centered),
        OptimizerSettings::Adagrad { .. } => 1,
    }
}

/// From the widths of the network's linear layers.
fn activations_per_sample(model: &dyn PosteriorModel) -> u64 {
    let layers = model
        .state()
        .named_parameters()
        .filter_map(|(_, parameter)| match parameter.size()[..] {
            [outputs, _] => Some(outputs as u64),
            _ => None,
        });
    layers.map(|outputs| outputs * ARRAYS_PER_LAYER * FLOAT).sum()
}
