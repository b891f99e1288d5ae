//! Dingo's embedding of the strain: a projection onto reduced bases, then a dense residual network (arXiv:2106.12594).

use super::module_merger::check_number_of_inputs;
use super::{
    Conditioner, DenseResidualNet, DenseResidualNetConfig, Identity, LinearProjectionRb, Mode, Module, ModuleMerger,
    NnError, ResidualBlockConfig, Scope,
};
use crate::settings::EmbeddingSettings;
use tch::Tensor;

/// Embeds one strain: `[batch, detectors, channels, bins]` to `[batch, output_dim]`.
pub struct StrainEmbedding {
    projection: LinearProjectionRb,
    resnet: DenseResidualNet,
}

impl StrainEmbedding {
    /// `settings.input_dims` must be known. `initial_bases` as in [`LinearProjectionRb::set_basis`].
    pub fn new(scope: &Scope, settings: &EmbeddingSettings, initial_bases: Option<&[Tensor]>) -> Result<Self, NnError> {
        let Some(input_dims) = settings.input_dims else {
            return Err(NnError::settings(
                "model.embedding_kwargs.input_dims",
                "not known before the data are",
            ));
        };
        let projection = LinearProjectionRb::new(&scope.child(0), input_dims, settings.svd.size)?;
        if let Some(bases) = initial_bases {
            projection.set_basis(bases)?;
        }
        let config = DenseResidualNetConfig {
            input_dim: projection.output_dim(),
            output_dim: settings.output_dim,
            hidden_dims: settings.hidden_dims.clone(),
            block: ResidualBlockConfig {
                context_features: None,
                activation: settings.activation,
                dropout_probability: settings.dropout,
                norm: settings.norm,
            },
        };
        Ok(StrainEmbedding {
            resnet: DenseResidualNet::new(&scope.child(1), &config)?,
            projection,
        })
    }
}

impl Module for StrainEmbedding {
    fn forward(&self, strain: &Tensor, mode: Mode) -> Result<Tensor, NnError> {
        self.resnet.forward(&self.projection.forward(strain)?, None, mode)
    }
}

/// Embeds all that a posterior is conditioned on.
pub enum EmbeddingNet {
    /// The strain alone.
    Strain(StrainEmbedding),
    /// The strain, and further context (GNPE's proxies) that is appended as it is.
    Merged(ModuleMerger),
}

impl EmbeddingNet {
    pub fn new(scope: &Scope, settings: &EmbeddingSettings, initial_bases: Option<&[Tensor]>) -> Result<Self, NnError> {
        if !settings.added_context {
            return Ok(EmbeddingNet::Strain(StrainEmbedding::new(
                scope,
                settings,
                initial_bases,
            )?));
        }
        let strain = StrainEmbedding::new(&scope.child("enets").child(0), settings, initial_bases)?;
        Ok(EmbeddingNet::Merged(ModuleMerger::new(vec![
            Box::new(strain),
            Box::new(Identity),
        ])))
    }

    /// `context` is the strain, `[batch, detectors, channels, bins]`, then what is added, `[batch, n]`; gives
    /// `[batch, output_dim + n]`.
    pub fn forward(&self, context: &[Tensor], mode: Mode) -> Result<Tensor, NnError> {
        match self {
            EmbeddingNet::Strain(embedding) => {
                check_number_of_inputs(context, 1)?;
                embedding.forward(&context[0], mode)
            }
            EmbeddingNet::Merged(merger) => merger.forward(context, mode),
        }
    }
}
