//! The `model` section.

use super::keys;
use super::section::{Origin, Section, BELOW_1, POSITIVE};
use super::upgrade::bring_up_to_date;
use super::{SettingsError, Value};
use serde_yaml::Mapping;

#[derive(Debug, Clone)]
pub struct ModelSettings {
    pub posterior_model_type: PosteriorModelType,
    pub posterior: FlowSettings,
    pub embedding: EmbeddingSettings,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PosteriorModelType {
    NormalizingFlow,
}

/// `posterior_kwargs` of a normalizing flow.
#[derive(Debug, Clone)]
pub struct FlowSettings {
    pub num_flow_steps: usize,
    pub base_transform: BaseTransformSettings,
    /// Number of inference parameters; completed from the data.
    pub input_dim: Option<usize>,
    /// Width of the (embedded) context; completed from the embedding.
    pub context_dim: Option<usize>,
}

/// `base_transform_kwargs`, with Dingo's defaults.
#[derive(Debug, Clone)]
pub struct BaseTransformSettings {
    pub hidden_dim: usize,
    pub num_transform_blocks: usize,
    pub activation: Activation,
    pub dropout_probability: f64,
    pub norm: Norm,
    pub num_bins: usize,
    pub tail_bound: f64,
    pub apply_unconditional_transform: bool,
}

/// `embedding_kwargs` of the SVD-seeded residual embedding.
#[derive(Debug, Clone)]
pub struct EmbeddingSettings {
    pub output_dim: usize,
    pub hidden_dims: Vec<usize>,
    pub activation: Activation,
    pub dropout: f64,
    pub norm: Norm,
    pub svd: SvdSettings,
    /// (detectors, channels, bins); completed from the data.
    pub input_dims: Option<[usize; 3]>,
    pub added_context: bool,
}

#[derive(Debug, Clone)]
pub struct SvdSettings {
    pub size: usize,
    pub num_training_samples: usize,
    pub num_validation_samples: usize,
    pub no_init: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activation {
    Elu,
    Relu,
    LeakyRelu,
    Gelu,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Norm {
    None,
    BatchNorm,
    LayerNorm,
}

impl ModelSettings {
    /// Reads a `model` section by itself: a checkpoint's `model_kwargs`.
    pub fn from_value(model: Value) -> Result<Self, SettingsError> {
        let mut settings = Value::Mapping(Mapping::from_iter([(Value::from("model"), model)]));
        bring_up_to_date(&mut settings)?;
        Self::read(&mut Section::new("model", &mut settings["model"], Origin::Checkpoint)?)
    }

    pub(super) fn read(model: &mut Section) -> Result<Self, SettingsError> {
        // The type comes first: another one has other keys.
        let posterior_model_type = model.choice(
            "posterior_model_type",
            &[
                ("normalizing_flow", Ok(PosteriorModelType::NormalizingFlow)),
                ("flow_matching", Err("a continuous flow")),
                ("score_matching", Err("a continuous flow")),
            ],
        )?;
        if matches!(model.get("embedding_kwargs"), None | Some(Value::Null)) {
            let message = "missing; a model without an embedding network is not supported yet";
            return Err(SettingsError::key(model.path("embedding_kwargs"), message));
        }
        model.choice(
            "embedding_type",
            &[("resnet", Ok(())), ("transformer", Err("transformer embedding"))],
        )?;
        model.check_keys(keys::MODEL)?;
        Ok(ModelSettings {
            posterior_model_type,
            posterior: FlowSettings::read(model.child("posterior_kwargs")?)?,
            embedding: EmbeddingSettings::read(model.child("embedding_kwargs")?)?,
        })
    }
}

impl FlowSettings {
    fn read(mut posterior: Section) -> Result<Self, SettingsError> {
        posterior.check_keys(keys::POSTERIOR)?;
        Ok(FlowSettings {
            num_flow_steps: posterior.size("num_flow_steps", 1)?,
            base_transform: BaseTransformSettings::read(posterior.child("base_transform_kwargs")?)?,
            input_dim: posterior.optional_size("input_dim", 1)?,
            context_dim: posterior.optional_size("context_dim", 1)?,
        })
    }
}

/// The spline's bins have a minimum width of 1/1000 of the interval (glasflow).
const MAX_NUM_BINS: usize = 1000;

impl BaseTransformSettings {
    fn read(mut transform: Section) -> Result<Self, SettingsError> {
        transform.check_keys(keys::BASE_TRANSFORM)?;
        if transform.get("base_transform_type").is_some() {
            transform.choice(
                "base_transform_type",
                &[
                    ("rq-coupling", Ok(())),
                    ("rq-autoregressive", Err("an autoregressive flow")),
                ],
            )?;
        }
        let num_bins = transform.count_or("num_bins", 8, 1)? as usize;
        if num_bins > MAX_NUM_BINS {
            return Err(transform.wrong("num_bins", &format!("a whole number from 1 to {MAX_NUM_BINS}")));
        }
        Ok(BaseTransformSettings {
            hidden_dim: transform.count_or("hidden_dim", 512, 1)? as usize,
            num_transform_blocks: transform.count_or("num_transform_blocks", 2, 1)? as usize,
            activation: read_activation(&mut transform, Activation::Relu)?,
            dropout_probability: transform.number_or("dropout_probability", 0.0, &BELOW_1)?,
            norm: read_norm(&mut transform, Norm::None)?,
            num_bins,
            tail_bound: transform.number_or("tail_bound", 1.0, &POSITIVE)?,
            apply_unconditional_transform: transform.flag_or("apply_unconditional_transform", false)?,
        })
    }
}

impl EmbeddingSettings {
    fn read(mut embedding: Section) -> Result<Self, SettingsError> {
        embedding.check_keys(keys::EMBEDDING)?;
        let input_dims = match embedding.get("input_dims") {
            None | Some(Value::Null) => None,
            Some(_) => {
                let dims = embedding.size_list("input_dims")?;
                let allowed = "a list of three numbers: detectors, channels, bins";
                Some(dims.try_into().map_err(|_| embedding.wrong("input_dims", allowed))?)
            }
        };
        Ok(EmbeddingSettings {
            output_dim: embedding.size("output_dim", 1)?,
            hidden_dims: embedding.size_list("hidden_dims")?,
            activation: read_activation(&mut embedding, Activation::Elu)?,
            dropout: embedding.number_or("dropout", 0.0, &BELOW_1)?,
            norm: read_norm(&mut embedding, Norm::BatchNorm)?,
            svd: SvdSettings::read(embedding.child("svd")?)?,
            input_dims,
            added_context: embedding.flag_or("added_context", false)?,
        })
    }
}

impl SvdSettings {
    fn read(mut svd: Section) -> Result<Self, SettingsError> {
        svd.check_keys(keys::SVD)?;
        let size = svd.size("size", 1)?;
        let no_init = svd.flag_or("no_init", false)?;
        if no_init {
            let num_training_samples = svd.count_or("num_training_samples", 0, 0)? as usize;
            let num_validation_samples = svd.count_or("num_validation_samples", 0, 0)? as usize;
            return Ok(SvdSettings {
                size,
                num_training_samples,
                num_validation_samples,
                no_init,
            });
        }
        let num_training_samples = svd.size("num_training_samples", 1)?;
        if num_training_samples < size {
            let allowed = format!("at least the size of the SVD, which is {size}");
            return Err(svd.wrong("num_training_samples", &allowed));
        }
        let num_validation_samples = svd.size("num_validation_samples", 0)?;
        Ok(SvdSettings {
            size,
            num_training_samples,
            num_validation_samples,
            no_init,
        })
    }
}

fn read_activation(section: &mut Section, default: Activation) -> Result<Activation, SettingsError> {
    if section.get("activation").is_none() {
        return Ok(default);
    }
    section.choice(
        "activation",
        &[
            ("elu", Ok(Activation::Elu)),
            ("relu", Ok(Activation::Relu)),
            ("leaky_relu", Ok(Activation::LeakyRelu)),
            ("gelu", Ok(Activation::Gelu)),
        ],
    )
}

/// Absent and null differ: null is no normalization, absent the default of the network.
fn read_norm(section: &mut Section, default: Norm) -> Result<Norm, SettingsError> {
    match section.get("norm") {
        None => Ok(default),
        Some(Value::Null) => Ok(Norm::None),
        Some(_) => section.choice(
            "norm",
            &[
                ("BatchNorm", Ok(Norm::BatchNorm)),
                ("None", Ok(Norm::None)),
                ("LayerNorm", Err("layer normalization")),
            ],
        ),
    }
}
