//! Layers and networks, with PyTorch's parameter names, registration order and initialization distributions.
//!
//! A network is built inside a [`Scope`], which gives every tensor its dotted name and enters it in the network's
//! [`ModuleState`] (what PyTorch's `state_dict` and `parameters` are made from). Layers keep handles to the same tensors.
//!
//! Errors: a layer checks the shape of what it is given and answers with [`NnError::Shape`]; the arithmetic after that
//! check cannot fail for a reason other than the device (memory), where `tch`'s panic is the right end.

mod activation;
mod batch_norm;
mod context_layers;
mod dense_residual_net;
mod dropout;
mod embedding;
mod error;
mod flows;
mod init;
mod layer_norm;
mod linear;
mod linear_projection_rb;
mod module_merger;
mod module_state;
mod norm;
mod residual_block;
mod residual_net;
mod scope;

pub use activation::activate;
pub use batch_norm::BatchNorm1d;
pub use dense_residual_net::{DenseResidualNet, DenseResidualNetConfig};
pub use dropout::{Dropout, TrainingPass};
pub use embedding::{EmbeddingNet, StrainEmbedding};
pub use error::NnError;
pub use flows::{
    neural_spline_flow, CompositeTransform, CouplingMask, Flow, FlowWrapper, LuLinear, PiecewiseRationalQuadraticCdf,
    PiecewiseRationalQuadraticCoupling, RandomPermutation, RationalQuadraticSpline, SplineParameters, StandardNormal,
    Transform, Transformed,
};
pub use init::{Init, SplitMix64};
pub use layer_norm::LayerNorm;
pub use linear::Linear;
pub use linear_projection_rb::LinearProjectionRb;
pub use module_merger::{Identity, Module, ModuleMerger};
pub use module_state::{ModuleState, Role};
pub use norm::NormLayer;
pub use residual_block::{ResidualBlock, ResidualBlockConfig};
pub use residual_net::{ResidualNet, ResidualNetConfig};
pub use scope::{build_module, BuildContext, Scope};

use tch::Tensor;

/// PyTorch's `network.train()` or `network.eval()`: whether dropout drops and batch normalization uses (and tracks) the
/// statistics of the batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    Train,
    Eval,
}

impl Mode {
    pub fn is_training(self) -> bool {
        self == Mode::Train
    }
}

/// A network from features to features, possibly conditioned on a context: what a coupling transform takes its spline's
/// parameters from.
pub trait Conditioner {
    /// `inputs` is `[batch, in_features]`, `context` `[batch, context_features]`; gives `[batch, out_features]`.
    fn forward(&self, inputs: &Tensor, context: Option<&Tensor>, mode: Mode) -> Result<Tensor, NnError>;

    /// The one width of the hidden layers; none where they differ. nflows scales spline parameters down by its root.
    fn hidden_features(&self) -> Option<usize>;
}
