//! Old keys and spellings, brought up to date in one place, for settings files and checkpoints alike: Dingo's
//! `update_model_config`, and the shorthands that Dingo expands while it trains.

use super::scalars::as_flag;
use super::section::shown;
use super::{SettingsError, Value};
use serde_yaml::Mapping;

/// Dingo's `inference_parameters: default`.
const DEFAULT_INFERENCE_PARAMETERS: [&str; 15] = [
    "chirp_mass",
    "mass_ratio",
    "phase",
    "a_1",
    "a_2",
    "tilt_1",
    "tilt_2",
    "phi_12",
    "phi_jl",
    "theta_jn",
    "luminosity_distance",
    "geocent_time",
    "ra",
    "dec",
    "psi",
];

/// The keys of the first Dingo versions, with what they are called now.
const RENAMED_MODEL_KEYS: [(&str, &str); 2] = [
    ("nsf_kwargs", "posterior_kwargs"),
    ("embedding_net_kwargs", "embedding_kwargs"),
];

/// Brings the tree of the sections `data` and `model` up to date, in place; `training` and `local` have no old keys.
/// Sections that are missing or of another type are left for the reader to report. Doing it twice changes nothing.
pub fn bring_up_to_date(settings: &mut Value) -> Result<(), SettingsError> {
    if let Some(Value::Mapping(data)) = settings.get_mut("data") {
        bring_data_up_to_date(data);
    }
    if let Some(Value::Mapping(model)) = settings.get_mut("model") {
        bring_model_up_to_date(model)?;
    }
    Ok(())
}

fn bring_data_up_to_date(data: &mut Mapping) {
    let parameters = data.get_mut("inference_parameters");
    if let Some(parameters) = parameters.filter(|parameters| parameters.as_str() == Some("default")) {
        *parameters = Value::from(&DEFAULT_INFERENCE_PARAMETERS[..]);
    }
}

fn bring_model_up_to_date(model: &mut Mapping) -> Result<(), SettingsError> {
    convert_norm_flags(model, "model")?;
    if model.get("type").and_then(Value::as_str) == Some("nsf+embedding") {
        model.shift_remove("type");
        model.insert("posterior_model_type".into(), "normalizing_flow".into());
        for (old, new) in RENAMED_MODEL_KEYS {
            if let Some(section) = model.shift_remove(old) {
                model.insert(new.into(), section);
            }
        }
    }
    if model.contains_key("embedding_kwargs") && !model.contains_key("embedding_type") {
        model.insert("embedding_type".into(), "resnet".into());
    }
    Ok(())
}

/// Turns `batch_norm` and `layer_norm`, at any depth, into `norm`: BatchNorm, LayerNorm or null. As in Dingo, an
/// explicit false becomes null, which is not the same as absent: the embedding's default is BatchNorm.
fn convert_norm_flags(section: &mut Mapping, path: &str) -> Result<(), SettingsError> {
    let mut take_flag = |key: &str| match section.shift_remove(key) {
        None => Ok(None),
        Some(Value::Null) => Ok(Some(false)),
        Some(value) => as_flag(&value).map(Some).ok_or_else(|| {
            SettingsError::key(
                format!("{path}.{key}"),
                format!("found {}, but this must be true or false", shown(&value)),
            )
        }),
    };
    let (batch_norm, layer_norm) = (take_flag("batch_norm")?, take_flag("layer_norm")?);
    if batch_norm.is_some() || layer_norm.is_some() {
        let norm = match (batch_norm.unwrap_or(false), layer_norm.unwrap_or(false)) {
            (true, true) => {
                let message = "found true beside layer_norm: true, but one normalization is allowed";
                return Err(SettingsError::key(format!("{path}.batch_norm"), message));
            }
            (true, false) => Value::from("BatchNorm"),
            (false, true) => Value::from("LayerNorm"),
            (false, false) => Value::Null,
        };
        check_agreement(section.get("norm"), &norm, path)?;
        section.insert("norm".into(), norm);
    }
    // `norm: None` is text in YAML, though Python's None is meant.
    if let Some(norm) = section.get_mut("norm").filter(|norm| norm.as_str() == Some("None")) {
        *norm = Value::Null;
    }
    for (key, value) in section.iter_mut() {
        if let (Some(key), Value::Mapping(inner)) = (key.as_str(), value) {
            convert_norm_flags(inner, &format!("{path}.{key}"))?;
        }
    }
    Ok(())
}

/// `norm` and an old flag may stand side by side only if they say the same.
fn check_agreement(norm: Option<&Value>, from_flags: &Value, path: &str) -> Result<(), SettingsError> {
    let agrees = match norm {
        None => true,
        Some(norm) => norm == from_flags || (norm.as_str() == Some("None") && from_flags.is_null()),
    };
    if agrees {
        return Ok(());
    }
    let found = norm.map(shown).unwrap_or_default();
    let message = format!("found {found}, which contradicts batch_norm or layer_norm beside it; keep only norm");
    Err(SettingsError::key(format!("{path}.norm"), message))
}
