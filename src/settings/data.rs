//! The `data` section.

use super::keys;
use super::scalars::number_text;
use super::section::{nearest, Section, ANY_NUMBER, BETWEEN_0_AND_1, NOT_NEGATIVE, PROBABILITY};
use super::{SettingsError, Value};
use crate::gw::detector::Detector;
use crate::gw::prior::Prior;
use indexmap::IndexMap;
use std::path::PathBuf;

#[derive(Debug, Clone)]
pub struct DataSettings {
    pub waveform_dataset_path: PathBuf,
    pub train_fraction: f64,
    pub domain_update: Option<DomainUpdate>,
    pub svd_size_update: Option<usize>,
    pub detectors: Vec<String>,
    /// Parameter name to bilby expression (or `default`, or a number as text), in the user's order. Extrinsic parameters
    /// that are not here have Dingo's default prior.
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

/// Hz. `delta_f` is allowed for completeness: it must be the data set's own.
#[derive(Debug, Clone, PartialEq)]
pub struct DomainUpdate {
    pub f_min: Option<f64>,
    pub f_max: Option<f64>,
    pub delta_f: Option<f64>,
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

/// `default` asks for Dingo's default prior, where it has one for the parameter.
const DEFAULT_PRIOR: &str = "default";

impl DataSettings {
    /// Whether the detectors exist and the priors parse.
    pub(super) fn validate(&self) -> Result<(), SettingsError> {
        for name in &self.detectors {
            if Detector::expand(name).is_empty() {
                let known = Detector::known_names();
                let nearest = nearest(name, known.iter().copied()).unwrap_or_default();
                let message = format!(
                    "found '{name}', but known are {} (nearest: {nearest})",
                    known.join(", ")
                );
                return Err(SettingsError::key("data.detectors", message));
            }
        }
        for (name, expression) in &self.extrinsic_prior {
            // Dingo takes no notice of `default` for a parameter that it has no default prior for.
            if expression != DEFAULT_PRIOR {
                let key = || format!("data.extrinsic_prior.{name}");
                Prior::parse(name, expression).map_err(|error| SettingsError::key(key(), error.to_string()))?;
            }
        }
        Ok(())
    }

    pub(super) fn read(data: &mut Section) -> Result<Self, SettingsError> {
        data.check_keys(keys::DATA)?;
        let detectors = data.names("detectors", "detector names such as H1")?;
        if detectors.is_empty() {
            return Err(data.wrong("detectors", "a list with at least one detector"));
        }
        let inference_parameters = data.names("inference_parameters", "parameter names, or the word default")?;
        if inference_parameters.is_empty() {
            return Err(data.wrong("inference_parameters", "a list with at least one parameter"));
        }
        Ok(DataSettings {
            waveform_dataset_path: data
                .text("waveform_dataset_path", "the path of a waveform dataset")?
                .into(),
            train_fraction: data.number("train_fraction", &BETWEEN_0_AND_1)?,
            domain_update: data
                .optional_child("domain_update")?
                .map(DomainUpdate::read)
                .transpose()?,
            svd_size_update: data.optional_size("svd_size_update", 1)?,
            detectors,
            extrinsic_prior: read_extrinsic_prior(&data.child("extrinsic_prior")?)?,
            ref_time: data.number("ref_time", &NOT_NEGATIVE)?,
            inference_parameters,
            context_parameters: match data.get("context_parameters") {
                None => Vec::new(),
                Some(_) => data.names("context_parameters", "parameter names")?,
            },
            random_strain_cropping: data
                .optional_child("random_strain_cropping")?
                .map(StrainCropping::read)
                .transpose()?,
            zero_noise: data.flag_or("zero_noise", false)?,
            standardization: data
                .optional_child("standardization")?
                .map(Standardization::read)
                .transpose()?,
        })
    }
}

/// An expression may be given as text or, for a fixed value, as a number.
fn read_extrinsic_prior(prior: &Section) -> Result<IndexMap<String, String>, SettingsError> {
    let mut expressions = IndexMap::new();
    for name in prior.key_names()? {
        let expression = match prior.get(&name) {
            Some(Value::String(text)) if text.eq_ignore_ascii_case(DEFAULT_PRIOR) => DEFAULT_PRIOR.into(),
            Some(Value::String(text)) if !text.trim().is_empty() => text.clone(),
            Some(value @ Value::Number(_)) => number_text(value).unwrap_or_default(),
            _ => return Err(prior.wrong(&name, "a bilby prior expression, a number or the word default")),
        };
        expressions.insert(name, expression);
    }
    Ok(expressions)
}

impl DomainUpdate {
    fn read(mut update: Section) -> Result<Self, SettingsError> {
        update.check_keys(keys::DOMAIN_UPDATE)?;
        if update.get("type").is_some() {
            let uniform = Ok(());
            update.choice(
                "type",
                &[
                    ("UniformFrequencyDomain", uniform),
                    ("FrequencyDomain", uniform),
                    ("FD", uniform),
                ],
            )?;
        }
        let f_min = update.optional_number("f_min", &NOT_NEGATIVE)?;
        let f_max = update.optional_number("f_max", &NOT_NEGATIVE)?;
        if let (Some(f_min), Some(f_max)) = (f_min, f_max) {
            if f_min >= f_max {
                return Err(update.wrong("f_min", &format!("less than f_max, which is {f_max}")));
            }
        }
        Ok(DomainUpdate {
            f_min,
            f_max,
            delta_f: update.optional_number("delta_f", &NOT_NEGATIVE)?,
        })
    }
}

impl StrainCropping {
    fn read(mut cropping: Section) -> Result<Self, SettingsError> {
        cropping.check_keys(keys::RANDOM_STRAIN_CROPPING)?;
        let f_min_upper = cropping.optional_number("f_min_upper", &NOT_NEGATIVE)?;
        let f_max_lower = cropping.optional_number("f_max_lower", &NOT_NEGATIVE)?;
        if let (Some(f_min_upper), Some(f_max_lower)) = (f_min_upper, f_max_lower) {
            if f_min_upper >= f_max_lower {
                return Err(cropping.wrong("f_min_upper", &format!("less than f_max_lower, which is {f_max_lower}")));
            }
        }
        Ok(StrainCropping {
            cropping_probability: cropping.number_or("cropping_probability", 1.0, &PROBABILITY)?,
            f_min_upper,
            f_max_lower,
            independent_detectors: cropping.flag_or("independent_detectors", true)?,
            independent_lower_upper: cropping.flag_or("independent_lower_upper", true)?,
        })
    }
}

impl Standardization {
    fn read(mut standardization: Section) -> Result<Self, SettingsError> {
        standardization.check_keys(keys::STANDARDIZATION)?;
        let mean = read_numbers(&mut standardization.child("mean")?)?;
        let mut std_section = standardization.child("std")?;
        let std = read_numbers(&mut std_section)?;
        if let Some((name, _)) = std.iter().find(|(_, &std)| std <= 0.0) {
            return Err(std_section.wrong(name, "a number above 0"));
        }
        Ok(Standardization { mean, std })
    }

    /// The tree Dingo stores as `data.standardization`.
    pub fn to_value(&self) -> Value {
        let section = |numbers: &IndexMap<String, f64>| {
            Value::Mapping(
                numbers
                    .iter()
                    .map(|(name, &x)| (Value::from(name.as_str()), Value::from(x)))
                    .collect(),
            )
        };
        let both = [("mean", section(&self.mean)), ("std", section(&self.std))];
        Value::Mapping(
            both.into_iter()
                .map(|(key, numbers)| (Value::from(key), numbers))
                .collect(),
        )
    }
}

fn read_numbers(section: &mut Section) -> Result<IndexMap<String, f64>, SettingsError> {
    let names = section.key_names()?;
    names
        .into_iter()
        .map(|name| section.number(&name, &ANY_NUMBER).map(|x| (name, x)))
        .collect()
}
