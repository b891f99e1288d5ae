// What autograd functions over our own host kernels share.
#pragma once

#include <ATen/EmptyTensor.h>
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>

#include <algorithm>

#include "kernels/element.h"

namespace dingo {

// Values below which another thread costs more than it brings.
constexpr int64_t kThreadValues = 16384;

// at::empty would be an operator call.
inline at::Tensor empty_host(at::IntArrayRef shape, at::ScalarType type) {
  return at::Tensor(at::detail::empty_cpu(shape, type));
}

// Tensors as the kernels see them: c10's bfloat16 is stored as ours.
template <typename Stored>
const Stored* data(const at::Tensor& tensor) {
  return static_cast<const Stored*>(tensor.const_data_ptr());
}
template <typename Stored>
Stored* mutable_data(const at::Tensor& tensor) {
  return static_cast<Stored*>(tensor.mutable_data_ptr());
}
template <typename Stored>
Stored* mutable_data_or_null(const at::Tensor& tensor) {
  return tensor.defined() ? mutable_data<Stored>(tensor) : nullptr;
}

template <typename Number>
constexpr at::ScalarType scalar_type() {
  return c10::CppTypeToScalarType<Number>::value;
}

// Calls `body(begin, end)` for parts of [0, pieces) of `values` each, on several threads where there is enough to do.
template <typename Body>
void share_out(int64_t pieces, int64_t values, const Body& body) {
  const int64_t grain = std::max<int64_t>(1, kThreadValues / std::max<int64_t>(1, values));
  at::parallel_for(0, pieces, grain, body);
}

}  // namespace dingo
