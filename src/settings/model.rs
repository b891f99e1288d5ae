//! The `model` section.

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
