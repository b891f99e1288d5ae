// The loops of batch_norm.h, built for several instruction sets.

#include "batch_norm.h"

#include <algorithm>

namespace dingo {
namespace {

// Rows whose sums are taken in the tensor's own precision before they are added up in double.
constexpr int64_t kChunkRows = 32;
// Rows that are added to the sums at once, so that these are loaded and stored less often.
constexpr int64_t kRowsAtOnce = 4;

// Adds x - pivot and its square over `rows` rows to the sums.
template <int64_t rows, typename Stored>
DINGO_INLINE void add_deviations(const Stored* x, int64_t features, int64_t width, const Number<Stored>* pivot,
                                 Number<Stored>* sum, Number<Stored>* squares) {
  DINGO_INDEPENDENT_ITERATIONS
  for (int64_t j = 0; j < width; ++j) {
    Number<Stored> added = 0, added_squares = 0;
    for (int64_t i = 0; i < rows; ++i) {
      const Number<Stored> deviation = number(x[i * features + j]) - pivot[j];
      added += deviation;
      added_squares += deviation * deviation;
    }
    sum[j] += added;
    squares[j] += added_squares;
  }
}

// Each chunk's moments about its first row, which is near enough to its mean (the error grows by a factor of the chunk's
// size at worst); chunks are combined as by Chan, Golub and LeVeque (1979).
template <typename Stored>
DINGO_INLINE void moments(const Stored* x, Tile tile, double* mean, double* m2) {
  const int64_t width = tile.end - tile.begin;
  mean += tile.begin;
  m2 += tile.begin;
  std::fill_n(mean, width, 0.0);
  std::fill_n(m2, width, 0.0);
  for (int64_t start = 0; start < tile.rows; start += kChunkRows) {
    const int64_t rows = std::min(kChunkRows, tile.rows - start);
    const Stored* row = x + start * tile.features + tile.begin;
    Number<Stored> pivot[kTileColumns], sum[kTileColumns] = {}, squares[kTileColumns] = {};
    for (int64_t j = 0; j < width; ++j) pivot[j] = number(row[j]);
    int64_t i = 0;
    for (; i + kRowsAtOnce <= rows; i += kRowsAtOnce) {
      add_deviations<kRowsAtOnce>(row + i * tile.features, tile.features, width, pivot, sum, squares);
    }
    for (; i < rows; ++i) add_deviations<1>(row + i * tile.features, tile.features, width, pivot, sum, squares);

    const double share = static_cast<double>(rows) / static_cast<double>(start + rows);
    const double per_row = 1.0 / static_cast<double>(rows);
    DINGO_INDEPENDENT_ITERATIONS
    for (int64_t j = 0; j < width; ++j) {
      const double offset = sum[j] * per_row;
      const double delta = pivot[j] + offset - mean[j];
      m2[j] += (squares[j] - sum[j] * offset) + delta * delta * (share * static_cast<double>(start));
      mean[j] += delta * share;
    }
  }
}

template <Activation activation, typename Stored>
DINGO_INLINE void normalize_as(const Stored* x, Tile tile, Affine<Number<Stored>> affine, Stored* y) {
  for (int64_t i = 0; i < tile.rows; ++i) {
    const Stored* from = x + i * tile.features;
    Stored* to = y + i * tile.features;
    DINGO_INDEPENDENT_ITERATIONS
    for (int64_t j = tile.begin; j < tile.end; ++j) {
      const Number<Stored> z = normalized(number(from[j]), affine.pivot[j], affine.scale[j], affine.offset[j]);
      store(activate<activation>(z), to + j);
    }
  }
}

template <typename Stored>
DINGO_INLINE void normalize(const Stored* x, Tile tile, Affine<Number<Stored>> affine, Activation activation, Stored* y) {
  DINGO_WITH_ACTIVATION(activation, Stored, normalize_as, x, tile, affine, y)
}

// The gradient before the activation at `place` of the tensors and column `j`.
template <Activation activation, typename Stored>
DINGO_INLINE Number<Stored> gradient_at(Saved<Stored> saved, int64_t place, Affine<Number<Stored>> affine, int64_t j) {
  const Number<Stored> z =
      normalized(number(saved.x[place]), affine.pivot[j], affine.scale[j], affine.offset[j]);
  return gradient_before<activation>(number(saved.dy[place]), number(saved.y[place]), z);
}

template <Activation activation, int64_t rows, typename Stored>
DINGO_INLINE void add_gradients(Saved<Stored> saved, int64_t first_row, Tile tile, Affine<Number<Stored>> affine,
                                Number<Stored>* sum, Number<Stored>* sum_centered) {
  DINGO_INDEPENDENT_ITERATIONS
  for (int64_t j = tile.begin; j < tile.end; ++j) {
    Number<Stored> added = 0, added_centered = 0;
    for (int64_t i = 0; i < rows; ++i) {
      const int64_t place = (first_row + i) * tile.features + j;
      const Number<Stored> dz = gradient_at<activation>(saved, place, affine, j);
      added += dz;
      added_centered += dz * (number(saved.x[place]) - affine.pivot[j]);
    }
    sum[j - tile.begin] += added;
    sum_centered[j - tile.begin] += added_centered;
  }
}

template <Activation activation, typename Stored>
DINGO_INLINE void gradient_sums_as(Saved<Stored> saved, Tile tile, Affine<Number<Stored>> affine, double* sum,
                                   double* sum_centered) {
  // Where the slope has to be calculated, loads and stores do not count, and a longer loop would not be vectorized.
  constexpr int64_t at_once = slope_from_output<activation>() ? kRowsAtOnce : 1;
  const int64_t width = tile.end - tile.begin;
  std::fill_n(sum + tile.begin, width, 0.0);
  std::fill_n(sum_centered + tile.begin, width, 0.0);
  for (int64_t start = 0; start < tile.rows; start += kChunkRows) {
    const int64_t end = std::min(start + kChunkRows, tile.rows);
    Number<Stored> chunk[kTileColumns] = {}, chunk_centered[kTileColumns] = {};
    int64_t i = start;
    for (; i + at_once <= end; i += at_once) {
      add_gradients<activation, at_once>(saved, i, tile, affine, chunk, chunk_centered);
    }
    for (; i < end; ++i) add_gradients<activation, 1>(saved, i, tile, affine, chunk, chunk_centered);
    DINGO_INDEPENDENT_ITERATIONS
    for (int64_t j = 0; j < width; ++j) {
      sum[tile.begin + j] += chunk[j];
      sum_centered[tile.begin + j] += chunk_centered[j];
    }
  }
}

template <typename Stored>
DINGO_INLINE void gradient_sums(Saved<Stored> saved, Tile tile, Affine<Number<Stored>> affine, Activation activation,
                                double* sum, double* sum_centered) {
  DINGO_WITH_ACTIVATION(activation, Stored, gradient_sums_as, saved, tile, affine, sum, sum_centered)
}

template <Activation activation, typename Stored>
DINGO_INLINE void input_gradient_as(Saved<Stored> saved, Tile tile, Affine<Number<Stored>> affine,
                                    const Number<Stored>* slope, const Number<Stored>* constant, const Stored* skip,
                                    Stored* dx) {
  for (int64_t i = 0; i < tile.rows; ++i) {
    const int64_t row = i * tile.features;
    if (skip == nullptr) {
      DINGO_INDEPENDENT_ITERATIONS
      for (int64_t j = tile.begin; j < tile.end; ++j) {
        const Number<Stored> dz = gradient_at<activation>(saved, row + j, affine, j);
        const Number<Stored> centered = number(saved.x[row + j]) - affine.pivot[j];
        const Number<Stored> rest = centered * slope[j - tile.begin] + constant[j - tile.begin];
        store(dz * affine.scale[j] + rest, dx + row + j);
      }
    } else {
      DINGO_INDEPENDENT_ITERATIONS
      for (int64_t j = tile.begin; j < tile.end; ++j) {
        const Number<Stored> dz = gradient_at<activation>(saved, row + j, affine, j);
        const Number<Stored> centered = number(saved.x[row + j]) - affine.pivot[j];
        const Number<Stored> rest = centered * slope[j - tile.begin] + constant[j - tile.begin];
        store(dz * affine.scale[j] + rest + number(skip[row + j]), dx + row + j);
      }
    }
  }
}

template <typename Stored>
DINGO_INLINE void input_gradient(Saved<Stored> saved, Tile tile, Affine<Number<Stored>> affine, Activation activation,
                                 const Number<Stored>* slope, const Number<Stored>* constant, const Stored* skip,
                                 Stored* dx) {
  DINGO_WITH_ACTIVATION(activation, Stored, input_gradient_as, saved, tile, affine, slope, constant, skip, dx)
}

// One build of the loops.
#define DINGO_BATCH_NORM_BUILD(Build, TARGET)                                                                         \
  template <typename Stored>                                                                                          \
  struct Build {                                                                                                      \
    using N = Number<Stored>;                                                                                         \
    TARGET static void moments(const Stored* x, Tile tile, double* mean, double* m2) {                                \
      dingo::moments(x, tile, mean, m2);                                                                              \
    }                                                                                                                 \
    TARGET static void normalize(const Stored* x, Tile tile, Affine<N> affine, Activation activation, Stored* y) {    \
      dingo::normalize(x, tile, affine, activation, y);                                                               \
    }                                                                                                                 \
    TARGET static void gradient_sums(Saved<Stored> saved, Tile tile, Affine<N> affine, Activation activation,         \
                                     double* sum, double* sum_centered) {                                             \
      dingo::gradient_sums(saved, tile, affine, activation, sum, sum_centered);                                       \
    }                                                                                                                 \
    TARGET static void input_gradient(Saved<Stored> saved, Tile tile, Affine<N> affine, Activation activation,        \
                                      const N* slope, const N* constant, const Stored* skip, Stored* dx) {            \
      dingo::input_gradient(saved, tile, affine, activation, slope, constant, skip, dx);                              \
    }                                                                                                                 \
    static constexpr BatchNormLoops<Stored> loops = {moments, normalize, gradient_sums, input_gradient};              \
  };

DINGO_BATCH_NORM_BUILD(Baseline, )
DINGO_BATCH_NORM_BUILD(Avx2, DINGO_AVX2)
DINGO_BATCH_NORM_BUILD(Avx512, DINGO_AVX512)

}  // namespace

template <typename Stored>
const BatchNormLoops<Stored>& batch_norm_loops(int level) {
  return level == 2 ? Avx512<Stored>::loops : level == 1 ? Avx2<Stored>::loops : Baseline<Stored>::loops;
}

// Double precision is for tests.
template <>
const BatchNormLoops<double>& batch_norm_loops<double>(int) {
  return Baseline<double>::loops;
}

template const BatchNormLoops<float>& batch_norm_loops<float>(int);
template const BatchNormLoops<BFloat16>& batch_norm_loops<BFloat16>(int);

}  // namespace dingo
