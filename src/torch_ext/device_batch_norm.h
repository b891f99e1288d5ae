// Batch normalization over ranks by libtorch's kernels for GPUs.
#pragma once

#include "batch_norm.h"

namespace dingo {

// For [batch, channels, ...] on a GPU; without the activation, and without counting the batch.
at::Tensor device_sync_batch_norm(const at::Tensor& input, const BatchNormLayer& layer);

}  // namespace dingo
