// Lists of features: places in the second dimension of a batch [batch, features].
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

#include <vector>

namespace dingo {

// The numbers in `places`, [count] of int64 in host memory, after a check that they lie in a batch of that width. They may
// come from a file.
inline std::vector<int64_t> feature_list(const at::Tensor& places, int64_t width) {
  TORCH_CHECK(places.dim() == 1 && places.scalar_type() == at::kLong && places.is_cpu() && places.is_contiguous(),
              "a list of features is a contiguous tensor of int64 in host memory with one dimension, found ",
              places.scalar_type(), " of shape ", places.sizes());
  const int64_t* first = places.const_data_ptr<int64_t>();
  std::vector<int64_t> list(first, first + places.numel());
  for (const int64_t place : list) {
    TORCH_CHECK(place >= 0 && place < width, "feature ", place, " of ", width);
  }
  return list;
}

// [batch, width] with the numbers of a sample side by side; samples may be any distance apart.
inline at::Tensor packed_rows(const at::Tensor& batch) {
  return batch.size(1) <= 1 || batch.stride(1) == 1 ? batch : batch.contiguous();
}

}  // namespace dingo
