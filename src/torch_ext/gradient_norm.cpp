// Norm and finiteness of gradients, in one pass over memory, and clearing them. Called from gradient_norm.rs.

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <cmath>
#include <cstring>
#include <vector>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "chunks.h"
#include "guard.h"
#include "kernels/square_norm.h"

namespace {

template <typename T>
using Norm = double (*)(const T*, int64_t count, double scale);

template <typename T>
DINGO_AVX512 double norm_avx512(const T* p, int64_t n, double scale) { return dingo::square_norm(p, n, scale); }
template <typename T>
DINGO_AVX2 double norm_avx2(const T* p, int64_t n, double scale) { return dingo::square_norm(p, n, scale); }
template <typename T>
double norm_baseline(const T* p, int64_t n, double scale) { return dingo::square_norm(p, n, scale); }

template <typename T>
Norm<T> norm_for(int level) {
  return level == 2 ? norm_avx512<T> : level == 1 ? norm_avx2<T> : norm_baseline<T>;
}

bool lies_flat_on_host(const at::Tensor& tensor) {
  const auto type = tensor.scalar_type();
  return tensor.is_cpu() && tensor.is_contiguous() && (type == at::kFloat || type == at::kDouble);
}

// Zeros written past the caches, which gradients of a network are too large for: that takes half the time, since memory
// is not read before.
void clear_memory(char* begin, size_t bytes) {
#if defined(__SSE2__)
  if (reinterpret_cast<uintptr_t>(begin) % sizeof(__m128i) == 0 && bytes % sizeof(__m128i) == 0) {
    for (size_t at = 0; at < bytes; at += sizeof(__m128i)) {
      _mm_stream_si128(reinterpret_cast<__m128i*>(begin + at), _mm_setzero_si128());
    }
    _mm_sfence();
    return;
  }
#endif
  std::memset(begin, 0, bytes);
}

}  // namespace

extern "C" {

// The squared norm of all the tensors times scale, and whether all their elements are finite.
char* dingo_square_norm(int level, size_t count, const at::Tensor* const* tensors, double scale, double* square_norm,
                        bool* finite) {
  return dingo::guard([&] {
    dingo::Chunks chunks;
    *square_norm = 0.0;
    std::vector<const at::Tensor*> on_host;
    at::NoGradGuard no_grad;
    for (size_t i = 0; i < count; ++i) {
      const at::Tensor& tensor = *tensors[i];
      if (lies_flat_on_host(tensor)) {
        on_host.push_back(&tensor);
        chunks.add(tensor.numel());
      } else {
        const double norm = at::linalg_vector_norm(tensor, 2, std::nullopt, false, at::kDouble).item<double>() * scale;
        *square_norm += norm * norm;
      }
    }
    std::vector<double> partial(chunks.count());
    chunks.for_each([&](int64_t piece, size_t i, int64_t first, int64_t elements) {
      const at::Tensor& tensor = *on_host[i];
      partial[piece] = tensor.scalar_type() == at::kFloat
                           ? norm_for<float>(level)(tensor.const_data_ptr<float>() + first, elements, scale)
                           : norm_for<double>(level)(tensor.const_data_ptr<double>() + first, elements, scale);
    });
    for (const double part : partial) *square_norm += part;
    // The squares of large numbers in double precision overflow without an infinity among them.
    *finite = true;
    if (!std::isfinite(*square_norm)) {
      for (size_t i = 0; i < count && *finite; ++i) *finite = at::isfinite(*tensors[i]).all().item<bool>();
    }
  });
}

// Fills the tensors with zeros.
char* dingo_clear(size_t count, const at::Tensor* const* tensors) {
  return dingo::guard([&] {
    dingo::Chunks chunks;
    std::vector<const at::Tensor*> on_host;
    at::NoGradGuard no_grad;
    for (size_t i = 0; i < count; ++i) {
      if (lies_flat_on_host(*tensors[i])) {
        on_host.push_back(tensors[i]);
        chunks.add(tensors[i]->numel());
      } else {
        tensors[i]->zero_();
      }
    }
    chunks.for_each([&](int64_t, size_t i, int64_t first, int64_t elements) {
      const size_t size = on_host[i]->element_size();
      clear_memory(static_cast<char*>(on_host[i]->data_ptr()) + first * size, elements * size);
    });
  });
}

}  // extern "C"
