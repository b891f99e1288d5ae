#include "column_sum.h"

#include <ATen/Parallel.h>

#include <algorithm>

#include "portable.h"

namespace {

// Columns that are summed side by side, in registers.
constexpr int64_t kTile = 64;
// Rows whose sum is added to the total as one, so that rounding errors grow with the root of their number.
constexpr int64_t kBlock = 64;

template <bool kWhole>
DINGO_INLINE void tile_sums(const float* values, int64_t rows, int64_t columns, int64_t stride, float beta,
                            float* sums) {
  const int64_t width = kWhole ? kTile : columns;
  float total[kTile] = {};
  for (int64_t first = 0; first < rows; first += kBlock) {
    float block[kTile] = {};
    const int64_t last = std::min(rows, first + kBlock);
    for (int64_t row = first; row < last; ++row) {
      const float* from = values + row * stride;
      for (int64_t c = 0; c < width; ++c) block[c] += from[c];
    }
    for (int64_t c = 0; c < width; ++c) total[c] += block[c];
  }
  // Not a product with beta: what was never set may be anything.
  for (int64_t c = 0; c < width; ++c) sums[c] = beta == 0 ? total[c] : sums[c] + total[c];
}

DINGO_INLINE void sums_of_tiles(const float* values, int64_t rows, int64_t columns, int64_t stride, float beta,
                                float* sums) {
  for (int64_t c = 0; c < columns; c += kTile) {
    if (columns - c >= kTile) {
      tile_sums<true>(values + c, rows, kTile, stride, beta, sums + c);
    } else {
      tile_sums<false>(values + c, rows, columns - c, stride, beta, sums + c);
    }
  }
}

DINGO_AVX512 void sums_avx512(const float* values, int64_t rows, int64_t columns, int64_t stride, float beta,
                              float* sums) {
  sums_of_tiles(values, rows, columns, stride, beta, sums);
}
DINGO_AVX2 void sums_avx2(const float* values, int64_t rows, int64_t columns, int64_t stride, float beta, float* sums) {
  sums_of_tiles(values, rows, columns, stride, beta, sums);
}
void sums_baseline(const float* values, int64_t rows, int64_t columns, int64_t stride, float beta, float* sums) {
  sums_of_tiles(values, rows, columns, stride, beta, sums);
}

using Sums = void (*)(const float*, int64_t, int64_t, int64_t, float, float*);

Sums widest() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512vl")) {
    return sums_avx512;
  }
  if (__builtin_cpu_supports("avx2")) {
    return sums_avx2;
  }
#endif
  return sums_baseline;
}

}  // namespace

void dingo::column_sums(const float* values, int64_t rows, int64_t columns, int64_t stride, float beta, float* sums) {
  static const Sums run = widest();
  const int64_t tiles = (columns + kTile - 1) / kTile;
  // A thread is worth its start for some ten thousand additions.
  const int64_t grain = std::max<int64_t>(1, 32768 / (kTile * std::max<int64_t>(rows, 1)));
  at::parallel_for(0, tiles, grain, [&](int64_t begin, int64_t end) {
    const int64_t first = begin * kTile, last = std::min(columns, end * kTile);
    run(values + first, rows, last - first, stride, beta, sums + first);
  });
}
