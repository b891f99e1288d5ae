//! What a checkpoint of Dingo's holds, typed: the contents of `model_latest.pt` and its siblings.

use super::error::{CheckpointError, Flaw};
use super::fields::Fields;
use super::object::{Dict, Object};
use super::{state_dict, OptimizerState};
use crate::settings::{bring_up_to_date, Value};
use indexmap::IndexMap;
use serde_yaml::Mapping;
use std::path::Path;
use tch::Tensor;

/// The `version` of a checkpoint written for a new network: the Dingo whose format and conventions it follows. Dingo
/// compares it with the versions that changed something.
pub const DINGO_VERSION: &str = "dingo=0.10.3";

/// The section of a settings file that `model_kwargs` is.
const MODEL: &str = "model";

/// One of Dingo's `.pt` files. Settings are trees as they stand in the file, with old keys brought up to date; tensors lie
/// on the CPU.
#[derive(Debug)]
pub struct Checkpoint {
    /// The network's settings; the same as `train_settings.model` of the metadata.
    pub model_kwargs: Value,
    /// Parameters and buffers by PyTorch's names, in the order in which the network registers them.
    pub model_state: IndexMap<String, Tensor>,
    /// Epochs completed.
    pub epoch: u64,
    /// Optimizer steps made; 0 in files from before Dingo counted them.
    pub iteration: u64,
    /// [`DINGO_VERSION`] for a new network; what stood there for one that was read. Absent in old files.
    pub version: Option<String>,
    pub metadata: Metadata,
    /// Absent in `best_model.pt`, which is for inference only.
    pub training: Option<TrainingState>,
    /// Dingo's inference puts these two into files it writes; they are kept as they are.
    pub context: Option<Object>,
    pub event_metadata: Option<Object>,
    /// What Dingo does not know and ignores: the rest of what an exact resume needs. Written with our own version under
    /// `version`.
    pub spmd: Option<Object>,
}

/// Where the network comes from.
#[derive(Debug)]
pub struct Metadata {
    pub dataset_settings: Value,
    /// The settings file without `local`, with `data.standardization` and the completed model settings.
    pub train_settings: Value,
    /// Everything else, such as `float32_matmul_precision`.
    pub other: IndexMap<String, Object>,
}

/// What it takes to go on training.
#[derive(Debug, Default)]
pub struct TrainingState {
    /// The `optimizer` and `scheduler` sections of the stage.
    pub optimizer_kwargs: Value,
    pub scheduler_kwargs: Value,
    pub optimizer: Option<OptimizerState>,
    pub scheduler: Option<Value>,
}

impl Checkpoint {
    /// Reads a checkpoint of Dingo's or our own. Executes nothing from it.
    ///
    /// # Errors
    /// The file is missing or unreadable, is no checkpoint, is damaged, holds anything but data, or lacks a key. Whether
    /// the tensors fit a network is for the network to say.
    pub fn load(path: impl AsRef<Path>) -> Result<Checkpoint, CheckpointError> {
        let path = path.as_ref();
        let root = Object::load(path)?;
        Checkpoint::from_object(root).map_err(|flaw| flaw.in_file(path))
    }

    /// Writes the checkpoint in place of what stands at `path`, all of it or nothing.
    ///
    /// # Errors
    /// [`CheckpointError::Write`] with the operating system's reason, such as a full disk.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<(), CheckpointError> {
        self.to_object().save(path)
    }

    fn from_object(root: Object) -> Result<Checkpoint, Flaw> {
        let mut fields = Fields::of(root)?;
        Ok(Checkpoint {
            model_kwargs: fields.nested("model_kwargs", model_kwargs_from_object)?,
            model_state: fields.nested("model_state_dict", state_dict::from_object)?,
            epoch: fields.count("epoch")?,
            iteration: fields.optional("iteration", Fields::count)?.unwrap_or(0),
            version: fields.optional("version", Fields::text)?,
            metadata: fields.nested("metadata", Metadata::from_object)?,
            training: TrainingState::from_fields(&mut fields)?,
            context: fields.take("context"),
            event_metadata: fields.take("event_metadata"),
            spmd: fields.take("spmd"),
        })
    }

    fn to_object(&self) -> Object {
        let mut dict = Dict::default();
        dict.set("model_kwargs", &self.model_kwargs);
        dict.set("model_state_dict", state_dict::to_object(&self.model_state));
        dict.set("epoch", self.epoch);
        dict.set("iteration", self.iteration);
        if let Some(version) = &self.version {
            dict.set("version", version.as_str());
        }
        dict.set("metadata", self.metadata.to_object());
        for (name, kept) in [("context", &self.context), ("event_metadata", &self.event_metadata)] {
            if let Some(object) = kept {
                dict.set(name, object.shallow_clone());
            }
        }
        if let Some(training) = &self.training {
            training.add_to(&mut dict);
        }
        dict.set("spmd", self.spmd_with_version());
        Object::Dict(dict)
    }

    fn spmd_with_version(&self) -> Object {
        let mut spmd = match &self.spmd {
            Some(Object::Dict(dict)) => dict.shallow_clone(),
            Some(other) => return other.shallow_clone(),
            None => Dict::default(),
        };
        spmd.set("version", env!("CARGO_PKG_VERSION"));
        Object::Dict(spmd)
    }
}

impl Metadata {
    fn from_object(object: Object) -> Result<Metadata, Flaw> {
        let mut fields = Fields::of(object)?;
        Ok(Metadata {
            dataset_settings: fields.value("dataset_settings")?,
            train_settings: fields.nested("train_settings", |object| up_to_date(object.into_value()?))?,
            other: fields.rest()?,
        })
    }

    fn to_object(&self) -> Object {
        let mut dict = Dict::default();
        dict.set("dataset_settings", &self.dataset_settings);
        dict.set("train_settings", &self.train_settings);
        for (name, object) in &self.other {
            dict.set(name, object.shallow_clone());
        }
        Object::Dict(dict)
    }
}

/// The network's settings by themselves are brought up to date as the section of a settings file that they are.
fn model_kwargs_from_object(object: Object) -> Result<Value, Flaw> {
    let mut settings = up_to_date(Mapping::from_iter([(MODEL.into(), object.into_value()?)]).into())?;
    Ok(std::mem::take(&mut settings[MODEL]))
}

fn up_to_date(mut settings: Value) -> Result<Value, Flaw> {
    bring_up_to_date(&mut settings).map_err(|error| Flaw::new(error.to_string()))?;
    Ok(settings)
}

impl TrainingState {
    /// `None` if the file has none of it.
    fn from_fields(fields: &mut Fields) -> Result<Option<TrainingState>, Flaw> {
        let optimizer_kwargs = fields.optional("optimizer_kwargs", Fields::value)?;
        let scheduler_kwargs = fields.optional("scheduler_kwargs", Fields::value)?;
        if optimizer_kwargs.is_none() && scheduler_kwargs.is_none() {
            return Ok(None);
        }
        Ok(Some(TrainingState {
            optimizer_kwargs: optimizer_kwargs.unwrap_or_default(),
            scheduler_kwargs: scheduler_kwargs.unwrap_or_default(),
            optimizer: fields.optional("optimizer_state_dict", |fields, name| {
                fields.nested(name, OptimizerState::from_object)
            })?,
            scheduler: fields.optional("scheduler_state_dict", Fields::value)?,
        }))
    }

    fn add_to(&self, dict: &mut Dict) {
        dict.set("optimizer_kwargs", &self.optimizer_kwargs);
        dict.set("scheduler_kwargs", &self.scheduler_kwargs);
        if let Some(optimizer) = &self.optimizer {
            dict.set("optimizer_state_dict", optimizer.to_object());
        }
        if let Some(scheduler) = &self.scheduler {
            dict.set("scheduler_state_dict", scheduler);
        }
    }
}
