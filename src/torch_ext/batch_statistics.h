// The statistics of a batch: moments of each feature, over one rank's rows or over all ranks', and what a layer makes of
// them.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "batch_norm.h"
#include "host_tensors.h"
#include "kernels/batch_norm.h"

namespace dingo {

// What makes up a layer's map of each feature, and its gradient.
template <typename N>
struct Coefficients {
  std::vector<N> pivot, scale, offset;
  std::vector<double> invstd;
  std::vector<double> shift;  // pivot - mean

  explicit Coefficients(int64_t features)
      : pivot(features), scale(features), offset(features), invstd(features), shift(features) {}

  void set(int64_t j, double mean, double variance, double eps, const N* weight, const N* bias) {
    pivot[j] = static_cast<N>(mean);
    shift[j] = static_cast<double>(pivot[j]) - mean;
    invstd[j] = 1.0 / std::sqrt(variance + eps);
    const double scaled = weight == nullptr ? invstd[j] : invstd[j] * static_cast<double>(weight[j]);
    scale[j] = static_cast<N>(scaled);
    offset[j] = static_cast<N>((bias == nullptr ? 0.0 : static_cast<double>(bias[j])) + shift[j] * scaled);
  }

  Affine<N> affine() const { return {pivot.data(), scale.data(), offset.data()}; }
};

// Moments of the features over one rank's rows, or over all: [1 + 2 features], count first.
struct Moments {
  at::Tensor values;
  int64_t features;

  explicit Moments(int64_t features) : values(empty_host({1 + 2 * features}, at::kDouble)), features(features) {}
  double& count() const { return *values.mutable_data_ptr<double>(); }
  double* mean() const { return values.mutable_data_ptr<double>() + 1; }
  double* m2() const { return mean() + features; }
};

// As by Chan, Golub and LeVeque (1979).
inline void combine_ranks(const RankStatistics& ranks, const Moments& moments) {
  const at::Tensor gathered = ranks.all_gather(moments.values);
  const int64_t size = gathered.size(0), width = 1 + 2 * moments.features;
  TORCH_CHECK(gathered.scalar_type() == at::kDouble && gathered.is_contiguous() && gathered.numel() == size * width,
              "batch normalization gathered ", gathered.sizes(), " of ", gathered.scalar_type());
  const double* all = gathered.const_data_ptr<double>();
  std::copy_n(all, width, moments.values.mutable_data_ptr<double>());
  for (int64_t rank = 1; rank < size; ++rank) {
    const double* other = all + rank * width;
    const double total = moments.count() + other[0];
    // A rank without rows takes part with zeros.
    const double share = total > 0 ? other[0] / total : 0.0;
    for (int64_t j = 0; j < moments.features; ++j) {
      const double delta = other[1 + j] - moments.mean()[j];
      moments.m2()[j] += other[1 + moments.features + j] + delta * delta * (share * moments.count());
      moments.mean()[j] += delta * share;
    }
    moments.count() = total;
  }
}

// The running statistics move by `momentum` towards the batch's, with the unbiased variance.
template <typename N>
void update_running(const BatchNormLayer& layer, const Moments& moments, const Tile& tile) {
  N* mean = mutable_data_or_null<N>(layer.running_mean);
  N* variance = mutable_data_or_null<N>(layer.running_var);
  for (int64_t j = tile.begin; j < tile.end; ++j) {
    if (mean != nullptr) {
      mean[j] = static_cast<N>(mean[j] + layer.momentum * (moments.mean()[j] - mean[j]));
    }
    if (variance != nullptr) {
      const double unbiased = moments.m2()[j] / (moments.count() - 1);
      variance[j] = static_cast<N>(variance[j] + layer.momentum * (unbiased - variance[j]));
    }
  }
}

}  // namespace dingo
