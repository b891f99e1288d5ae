//! `torch.nn.BatchNorm1d` (Ioffe and Szegedy 2015, arXiv:1502.03167).

use super::activation::kernel;
use super::error::check_width;
use super::{Init, Mode, NnError, Scope};
use crate::settings::Activation;
use crate::torch_ext::{
    batch_norm, batch_norm_with_skip, BatchNormOptions, BatchNormTensors, BatchStatistics, RankStatistics,
};
use std::sync::Arc;
use tch::{Kind, Tensor};

/// Of nflows' and Dingo's residual blocks (PyTorch's default is 1e-5).
const EPS: f64 = 1e-3;

/// Share of the newest batch in the running statistics; PyTorch's default.
const MOMENTUM: f64 = 0.1;

/// Normalizes each feature over the batch in training, and by the running statistics of training otherwise. Between ranks
/// that train together the batch is that of all ranks (`BuildContext::batch_norm_ranks`).
pub struct BatchNorm1d {
    weight: Tensor,
    bias: Tensor,
    running_mean: Tensor,
    running_var: Tensor,
    num_batches_tracked: Tensor,
    features: usize,
    ranks: Option<Arc<dyn RankStatistics>>,
}

impl BatchNorm1d {
    pub fn new(scope: &Scope, features: usize) -> Result<Self, NnError> {
        let weight = scope.parameter("weight", &[features], Init::Constant(1.0))?;
        let bias = scope.parameter("bias", &[features], Init::Constant(0.0))?;
        let (width, options) = ([features as i64], (Kind::Float, scope.device()));
        let running_mean = scope.buffer("running_mean", Tensor::f_zeros(width, options)?)?;
        let running_var = scope.buffer("running_var", Tensor::f_ones(width, options)?)?;
        let num_batches_tracked = scope.buffer("num_batches_tracked", Tensor::from(0i64))?;
        let ranks = scope.context().batch_norm_ranks.clone();
        Ok(BatchNorm1d {
            weight,
            bias,
            running_mean,
            running_var,
            num_batches_tracked,
            features,
            ranks,
        })
    }

    /// `[batch, features]` to the same. Training updates the running statistics, with the unbiased variance.
    ///
    /// Errors in training on fewer than two samples over all ranks, which have no variance.
    pub fn forward(&self, input: &Tensor, mode: Mode) -> Result<Tensor, NnError> {
        self.check(input, mode)?;
        Ok(batch_norm(input, self.tensors(), self.options(None, mode))?)
    }

    /// As [`forward`](Self::forward), and the activation, in one pass.
    pub fn forward_activated(&self, input: &Tensor, activation: Activation, mode: Mode) -> Result<Tensor, NnError> {
        self.check(input, mode)?;
        Ok(batch_norm(input, self.tensors(), self.options(Some(activation), mode))?)
    }

    /// As [`forward_activated`](Self::forward_activated); also gives `input` for a connection past the layer, whose
    /// gradient is then added in the same pass.
    pub fn forward_with_skip(
        &self,
        input: &Tensor,
        activation: Activation,
        mode: Mode,
    ) -> Result<(Tensor, Tensor), NnError> {
        self.check(input, mode)?;
        let options = self.options(Some(activation), mode);
        Ok(batch_norm_with_skip(input, self.tensors(), options)?)
    }

    fn tensors(&self) -> BatchNormTensors<'_> {
        BatchNormTensors {
            weight: Some(&self.weight),
            bias: Some(&self.bias),
            running_mean: Some(&self.running_mean),
            running_var: Some(&self.running_var),
            num_batches_tracked: Some(&self.num_batches_tracked),
        }
    }

    fn options(&self, activation: Option<Activation>, mode: Mode) -> BatchNormOptions<'_> {
        let statistics = match (mode, &self.ranks) {
            (Mode::Eval, _) => BatchStatistics::Running,
            (Mode::Train, None) => BatchStatistics::Batch,
            (Mode::Train, Some(ranks)) => BatchStatistics::AllRanks(ranks),
        };
        BatchNormOptions {
            statistics,
            momentum: MOMENTUM,
            eps: EPS,
            activation: kernel(activation),
        }
    }

    fn check(&self, input: &Tensor, mode: Mode) -> Result<(), NnError> {
        check_width("BatchNorm1d", input, self.features)?;
        let batch = input.size()[0];
        // Between ranks, all of their samples count.
        if mode.is_training() && self.ranks.is_none() && batch < 2 {
            let message = format!("training needs at least 2 samples in a batch, got {batch}");
            return Err(NnError::Undefined {
                layer: "BatchNorm1d",
                message,
            });
        }
        Ok(())
    }
}
