// A batch-normalization layer with the activation after it.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "kernels/activation.h"
#include "rank_statistics.h"

namespace dingo {

struct BatchNormLayer {
  std::optional<at::Tensor> weight, bias;  // [channels]
  at::Tensor running_mean, running_var;    // [channels], may be undefined in training
  at::Tensor num_batches_tracked;          // one int64, may be undefined
  double momentum, eps;
  Activation activation;
  bool training;
  // Those that share the batch; null for a rank by itself. Not asked in evaluation.
  c10::intrusive_ptr<RankStatistics> ranks;
  // Which build of the kernels; as in simd.rs.
  int level;
};

// By libtorch's own operations: any shape [batch, channels, ...], device and floating-point type.
at::Tensor plain_batch_norm(const at::Tensor& input, const BatchNormLayer& layer);

}  // namespace dingo
