//! The `data` section.

use indexmap::IndexMap;
use std::path::PathBuf;

#[derive(Debug, Clone)]
pub struct DataSettings {
    pub waveform_dataset_path: PathBuf,
    pub train_fraction: f64,
    pub domain_update: Option<DomainUpdate>,
    pub svd_size_update: Option<usize>,
    pub detectors: Vec<String>,
    /// Parameter name to bilby expression (or `default`, or a number as text), in the user's order.
    pub extrinsic_prior: IndexMap<String, String>,
    /// GPS seconds.
    pub ref_time: f64,
    pub inference_parameters: Vec<String>,
    pub context_parameters: Vec<String>,
    pub random_strain_cropping: Option<StrainCropping>,
    pub zero_noise: bool,
    /// Present in a checkpoint's settings, or when the user gave it.
    pub standardization: Option<Standardization>,
}

/// Hz.
#[derive(Debug, Clone, PartialEq)]
pub struct DomainUpdate {
    pub f_min: Option<f64>,
    pub f_max: Option<f64>,
}

/// Mean and standard deviation by parameter name.
#[derive(Debug, Clone, PartialEq)]
pub struct Standardization {
    pub mean: IndexMap<String, f64>,
    pub std: IndexMap<String, f64>,
}

/// Dingo's `random_strain_cropping` with its defaults.
#[derive(Debug, Clone, PartialEq)]
pub struct StrainCropping {
    pub cropping_probability: f64,
    pub f_min_upper: Option<f64>,
    pub f_max_lower: Option<f64>,
    pub independent_detectors: bool,
    pub independent_lower_upper: bool,
}
