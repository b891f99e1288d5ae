//! What a run would do, in numbers.

use super::disk::DiskNeed;
use super::memory::MemoryEstimate;
use crate::posterior::PosteriorModel;
use crate::settings::{LocalSettings, StageSettings, TrainSettings, Value};
use crate::train::{Corpus, Progress};
use std::path::PathBuf;

#[derive(Debug)]
pub struct Plan {
    pub data: DataPlan,
    pub network: NetworkPlan,
    pub stages: Vec<StagePlan>,
    pub memory: MemoryEstimate,
    /// None until it is known how much space there is.
    pub disk: Option<DiskNeed>,
}

#[derive(Debug)]
pub struct DataPlan {
    pub path: PathBuf,
    pub samples: usize,
    pub train_samples: usize,
    pub test_samples: usize,
    pub detectors: Vec<String>,
    /// Hz: f_min, f_max, delta_f.
    pub domain: [f64; 3],
    /// Bins from f_min to f_max.
    pub bins: usize,
    pub inference_parameters: Vec<String>,
    pub context_parameters: Vec<String>,
    /// Of the polarizations in the file.
    pub stored_bytes: u64,
    /// Whether the ranks of a node share the file's pages, rather than each holding the polarizations.
    pub is_mapped: bool,
}

/// Parameters are counted one by one, frozen ones included.
#[derive(Debug)]
pub struct NetworkPlan {
    /// As the settings spell it.
    pub kind: String,
    pub embedding_parameters: usize,
    pub flow_parameters: usize,
    /// Of the embedding's first layer, which a stage may freeze.
    pub first_layer_parameters: usize,
    /// Parameters and buffers.
    pub tensors: usize,
    /// Of parameters and buffers.
    pub state_bytes: u64,
}

#[derive(Debug)]
pub struct StagePlan {
    pub number: usize,
    pub epochs: usize,
    /// Epochs that the checkpoint has behind it.
    pub epochs_done: usize,
    pub batch_size: usize,
    pub batch_size_per_rank: usize,
    /// Backward passes for one step.
    pub passes: usize,
    pub steps_per_epoch: usize,
    /// Type and learning rate, as written.
    pub optimizer: String,
    pub scheduler: String,
    pub learnable_parameters: usize,
    pub mixed_precision: bool,
    pub early_stopping: bool,
    pub asd_dataset: PathBuf,
}

impl NetworkPlan {
    pub fn parameters(&self) -> usize {
        self.embedding_parameters + self.flow_parameters
    }

    fn new(settings: &TrainSettings, model: &dyn PosteriorModel) -> NetworkPlan {
        let state = model.state();
        let count = |of: &dyn Fn(&str) -> bool| -> usize {
            let counted = state.named_parameters().filter(|(name, _)| of(name));
            counted.map(|(_, parameter)| parameter.numel()).sum()
        };
        let tensors = state.state_dict();
        let bytes = |tensor: &tch::Tensor| (tensor.numel() * tensor.kind().elt_size_in_bytes()) as u64;
        NetworkPlan {
            kind: text(
                settings
                    .raw
                    .get("model")
                    .and_then(|model| model.get("posterior_model_type")),
            ),
            embedding_parameters: count(&|name| name.starts_with("embedding_net.")),
            flow_parameters: count(&|name| !name.starts_with("embedding_net.")),
            first_layer_parameters: count(&|name| name.contains("layers_rb")),
            tensors: tensors.len(),
            state_bytes: tensors.values().map(bytes).sum(),
        }
    }
}

impl Plan {
    pub(super) fn new(
        settings: &TrainSettings,
        local: &LocalSettings,
        corpus: &Corpus,
        model: &dyn PosteriorModel,
        progress: Progress,
        ranks: usize,
    ) -> Plan {
        let network = NetworkPlan::new(settings, model);
        let data = DataPlan::new(settings, local, corpus);
        let stages = settings.stages.iter().enumerate();
        let stages: Vec<StagePlan> = stages
            .map(|(number, stage)| StagePlan {
                epochs_done: match number.cmp(&progress.stage) {
                    std::cmp::Ordering::Less => stage.epochs,
                    std::cmp::Ordering::Equal => progress.epoch_in_stage,
                    std::cmp::Ordering::Greater => 0,
                },
                ..StagePlan::new(number, stage, settings, &network, data.train_samples, ranks)
            })
            .collect();
        let memory = MemoryEstimate::new(settings, corpus, model, &data, &stages, progress);
        Plan {
            data,
            network,
            stages,
            memory,
            disk: None,
        }
    }

    /// What is worth a second look, though the run would start.
    pub(super) fn warnings(&self, local: &LocalSettings, ranks: usize) -> Vec<String> {
        let mut warnings = Vec::new();
        if local.num_gpus_is_given() && local.num_gpus != ranks {
            warnings.push(format!(
                "local.num_gpus is {}, but {ranks} ranks are checked: the number of ranks that are started counts",
                local.num_gpus
            ));
        }
        if !self.data.is_mapped && local.leave_waveforms_on_disk {
            warnings.push(
                "the waveforms are chunked or compressed in their file, so that each rank reads all of them into memory"
                    .into(),
            );
        }
        if let Some(folder) = &local.local_cache_path {
            warnings.push(format!(
                "local.local_cache_path {} must have room for the waveform dataset on each node, which cannot be checked \
                 from here",
                folder.display()
            ));
        }
        warnings
    }

    /// Epochs that are left.
    pub fn epochs_left(&self) -> usize {
        self.stages
            .iter()
            .map(|stage| stage.epochs - stage.epochs_done.min(stage.epochs))
            .sum()
    }
}

impl DataPlan {
    fn new(settings: &TrainSettings, local: &LocalSettings, corpus: &Corpus) -> DataPlan {
        let (dataset, [train_samples, test_samples]) = (&corpus.dataset, corpus.split_lengths());
        let domain = dataset.domain();
        let [_, stored_bytes] = dataset.waveform_bytes();
        DataPlan {
            path: settings.data.waveform_dataset_path.clone(),
            samples: dataset.len(),
            train_samples,
            test_samples,
            detectors: settings.data.detectors.clone(),
            domain: [domain.f_min, domain.f_max, domain.delta_f],
            bins: domain.num_bins() - domain.min_index(),
            inference_parameters: settings.data.inference_parameters.clone(),
            context_parameters: settings.data.context_parameters.clone(),
            stored_bytes,
            is_mapped: local.leave_waveforms_on_disk && dataset.can_be_mapped(),
        }
    }
}

impl StagePlan {
    fn new(
        number: usize,
        stage: &StageSettings,
        settings: &TrainSettings,
        network: &NetworkPlan,
        samples: usize,
        ranks: usize,
    ) -> StagePlan {
        let passes = stage.gradient_updates_per_optimizer_step;
        let is_frozen = settings.first_layer_is_frozen(number);
        let frozen = if is_frozen { network.first_layer_parameters } else { 0 };
        StagePlan {
            number,
            epochs: stage.epochs,
            epochs_done: 0,
            batch_size: stage.batch_size,
            batch_size_per_rank: stage.batch_size / ranks,
            passes,
            steps_per_epoch: samples.div_ceil(stage.batch_size) / passes,
            optimizer: summary(&stage.raw_optimizer, "lr"),
            scheduler: summary(&stage.raw_scheduler, ""),
            learnable_parameters: network.parameters() - frozen,
            mixed_precision: stage.automatic_mixed_precision,
            early_stopping: stage.early_stopping.is_some(),
            asd_dataset: stage.asd_dataset_path.clone(),
        }
    }
}

/// The type, and what stands at one other key.
fn summary(section: &Value, key: &str) -> String {
    let kind = text(section.get("type"));
    match section.get(key) {
        Some(value) => format!("{kind}, {key} {}", text(Some(value))),
        None => kind,
    }
}

fn text(value: Option<&Value>) -> String {
    match value {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Number(number)) => number.to_string(),
        _ => String::new(),
    }
}
