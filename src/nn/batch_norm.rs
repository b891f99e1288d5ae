//! `torch.nn.BatchNorm1d` (Ioffe and Szegedy 2015, arXiv:1502.03167).

use super::error::check_width;
use super::{Init, Mode, NnError, Scope};
use crate::torch_ext::{sync_batch_norm, BatchNormTensors, RankStatistics};
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
        check_width("BatchNorm1d", input, self.features)?;
        if mode.is_training() {
            let _ = self.num_batches_tracked.shallow_clone().g_add_scalar_(1);
        }
        match &self.ranks {
            Some(ranks) if mode.is_training() => self.forward_with(ranks, input),
            _ => self.forward_alone(input, mode),
        }
    }

    fn forward_with(&self, ranks: &Arc<dyn RankStatistics>, input: &Tensor) -> Result<Tensor, NnError> {
        let tensors = BatchNormTensors {
            weight: Some(&self.weight),
            bias: Some(&self.bias),
            running_mean: Some(&self.running_mean),
            running_var: Some(&self.running_var),
        };
        Ok(sync_batch_norm(input, tensors, MOMENTUM, EPS, ranks)?)
    }

    fn forward_alone(&self, input: &Tensor, mode: Mode) -> Result<Tensor, NnError> {
        let batch = input.size()[0];
        if mode.is_training() && batch < 2 {
            let message = format!("training needs at least 2 samples in a batch, got {batch}");
            return Err(NnError::Undefined {
                layer: "BatchNorm1d",
                message,
            });
        }
        Ok(input.batch_norm(
            Some(&self.weight),
            Some(&self.bias),
            Some(&self.running_mean),
            Some(&self.running_var),
            mode.is_training(),
            MOMENTUM,
            EPS,
            true,
        ))
    }
}
