//! What the user wrote, as typed structs. Old keys are brought up to date here and nowhere else.

mod data;
mod error;
mod local;
mod model;
mod training;

pub use data::{DataSettings, DomainUpdate, Standardization, StrainCropping};
pub use error::SettingsError;
pub use local::{Device, LocalSettings, RuntimeLimitSettings};
pub use model::{
    Activation, BaseTransformSettings, EmbeddingSettings, FlowSettings, ModelSettings, Norm, PosteriorModelType,
    SvdSettings,
};
pub use training::{EarlyStoppingMetric, EarlyStoppingSettings, OptimizerSettings, SchedulerSettings, StageSettings};

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
