//! What the user wrote, as typed structs. Old keys are brought up to date here and nowhere else.
//!
//! A file becomes a tree ([`yaml`]), old keys in it are replaced ([`bring_up_to_date`]), and the tree is read section by
//! section into the structs below. The tree is kept beside them: it is what checkpoints and `local_settings.yaml` store.

mod cluster;
mod compare;
mod complete;
mod data;
mod error;
mod keys;
mod local;
mod model;
mod optimizer;
mod scalars;
mod section;
mod training;
mod upgrade;
pub mod yaml;

#[cfg(test)]
mod tests;

pub use cluster::{CondorSettings, SlurmLauncher, SlurmSettings};
pub use compare::Difference;
pub use data::{DataSettings, DomainUpdate, Standardization, StrainCropping};
pub use error::SettingsError;
pub use local::{Device, LocalSettings, MatmulPrecision, MatrixLibrary, RuntimeLimitSettings};
pub use model::{
    Activation, BaseTransformSettings, EmbeddingSettings, FlowSettings, ModelSettings, Norm, PosteriorModelType,
    SvdSettings,
};
pub use optimizer::{OptimizerSettings, SchedulerSettings};
pub use training::{AmpDtype, EarlyStoppingMetric, EarlyStoppingSettings, StageSettings};
pub use upgrade::bring_up_to_date;

use section::{Origin, Section};
use std::path::Path;

/// The tree every YAML file, HDF5 `settings` attribute and checkpoint dictionary is read into, order kept.
pub type Value = serde_yaml::Value;

/// A settings file: what the training is, and where it runs.
#[derive(Debug, Clone)]
pub struct Settings {
    pub train: TrainSettings,
    pub local: LocalSettings,
}

/// Everything but `local`; what goes into the checkpoint as `metadata.train_settings`.
#[derive(Debug, Clone)]
pub struct TrainSettings {
    pub data: DataSettings,
    pub model: ModelSettings,
    pub stages: Vec<StageSettings>,
    /// The same as a tree, with old keys brought up to date, in the user's order: written to the checkpoint. Completed by
    /// the setters (`set_standardization`, `set_context_parameters`, `complete_model`), which keep both in step.
    pub raw: Value,
}

impl Settings {
    /// Reads a settings file.
    pub fn load(path: &Path) -> Result<Self, SettingsError> {
        Self::from_document(read_document(path)?, &path.display().to_string())
    }

    /// Reads the text of a settings file; `file_name` is for messages.
    pub fn parse(text: &str, file_name: &str) -> Result<Self, SettingsError> {
        Self::from_document(parse_document(text, file_name)?, file_name)
    }

    fn from_document(mut document: yaml::Document, file: &str) -> Result<Self, SettingsError> {
        let mut root = std::mem::take(&mut document.value);
        Self::from_tree(&mut root).map_err(|error| in_file(error, file, |key| document.line(key)))
    }

    fn from_tree(root: &mut Value) -> Result<Self, SettingsError> {
        let section = Section::new("", root, Origin::User)?;
        section.check_keys(keys::ROOT)?;
        let local = root.as_mapping_mut().and_then(|root| root.shift_remove("local"));
        let local = local.ok_or_else(|| SettingsError::key("local", "missing; this must be a section"))?;
        let train = TrainSettings::from_tree(std::mem::take(root), Origin::User)?;
        train.validate()?;
        Ok(Settings {
            train,
            local: LocalSettings::from_value(local)?,
        })
    }
}

impl TrainSettings {
    /// Reads a checkpoint's `metadata.train_settings`: no `local` section, and completed. A key that is not known there
    /// is a warning, since another version of Dingo may have written it.
    pub fn from_value(raw: Value) -> Result<Self, SettingsError> {
        Self::from_tree(raw, Origin::Checkpoint)
    }

    /// Whether what settings mean beyond their types exists: detectors by name, priors by expression. Done by
    /// [`Settings::load`]; a checkpoint's settings can be read without.
    pub fn validate(&self) -> Result<(), SettingsError> {
        self.data.validate()
    }

    fn from_tree(mut raw: Value, origin: Origin) -> Result<Self, SettingsError> {
        bring_up_to_date(&mut raw)?;
        let mut root = Section::new("", &mut raw, origin)?;
        let data = DataSettings::read(&mut root.child("data")?)?;
        let model = ModelSettings::read(&mut root.child("model")?)?;
        let stages = StageSettings::read_all(&mut root.child("training")?)?;
        Ok(TrainSettings {
            data,
            model,
            stages,
            raw,
        })
    }
}

fn read_document(path: &Path) -> Result<yaml::Document, SettingsError> {
    let file = path.display().to_string();
    match std::fs::read(path) {
        Ok(bytes) => match String::from_utf8(bytes) {
            Ok(text) => parse_document(&text, &file),
            Err(_) => Err(SettingsError::File {
                file,
                message: "not a text file in UTF-8".into(),
            }),
        },
        Err(error) => Err(SettingsError::File {
            file,
            message: format!("cannot be read: {error}"),
        }),
    }
}

fn parse_document(text: &str, file: &str) -> Result<yaml::Document, SettingsError> {
    let with_file = |message: String| SettingsError::File {
        file: file.into(),
        message,
    };
    let document = yaml::read(text).map_err(|error| with_file(error.to_string()))?;
    match &document.value {
        Value::Mapping(_) => Ok(document),
        Value::Null => Err(with_file("the file is empty; settings have sections of keys".into())),
        other => Err(with_file(format!(
            "found {} at the top level, but sections of keys are needed",
            section::shown(other)
        ))),
    }
}

/// Adds the file, and the line where the key stands in it.
fn in_file(error: SettingsError, file: &str, line: impl Fn(&str) -> Option<u64>) -> SettingsError {
    let line = error.dotted_key().and_then(line);
    SettingsError::InFile {
        file: file.into(),
        line,
        error: Box::new(error),
    }
}
