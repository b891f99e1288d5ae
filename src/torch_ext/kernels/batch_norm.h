// Batch normalization and the activation after it, one value at a time; and the loops of batch_norm.cpp over columns.
#pragma once

#include <cstdint>

#include "activation.h"
#include "element.h"
#include "portable.h"

namespace dingo {

// Columns [begin, end) of a contiguous [rows, features]; at most kTileColumns of them.
struct Tile {
  int64_t rows, features, begin, end;
};

// Some hundred rows of it fit into a core's second cache, with what else a pass reads.
constexpr int64_t kTileColumns = 128;

// y = activation((x - pivot) * scale + offset). The pivot is the mean as far as the type holds it, and the offset makes
// up for the rest, so that no digits are lost where the mean is large.
template <typename Number>
struct Affine {
  const Number *pivot, *scale, *offset;  // [features]
};

template <typename Number>
DINGO_INLINE Number normalized(Number x, Number pivot, Number scale, Number offset) {
  return (x - pivot) * scale + offset;
}

// The gradient before the activation. `z` is its input; it is not calculated where the output does.
template <Activation activation, typename Number>
DINGO_INLINE Number gradient_before(Number dy, Number y, Number z) {
  return dy * slope<activation>(slope_from_output<activation>() ? y : z);
}

// What backward reads, each [rows, features].
template <typename Stored>
struct Saved {
  const Stored *dy, *x, *y;
};

// The loops, for one instruction set. Sums are taken in chunks of rows of a fixed size, in double beyond them; each
// column by itself, so that no result depends on how columns are shared out among threads.
template <typename Stored>
struct BatchNormLoops {
  // Mean and sum of squared deviations of each column: [features].
  void (*moments)(const Stored* x, Tile tile, double* mean, double* m2);
  void (*normalize)(const Stored* x, Tile tile, Affine<Number<Stored>> affine, Activation activation, Stored* y);
  // Sums over rows of dz, the gradient before the activation, and of dz * (x - pivot): [features].
  void (*gradient_sums)(Saved<Stored> saved, Tile tile, Affine<Number<Stored>> affine, Activation activation,
                        double* sum, double* sum_centered);
  // dx = dz * scale + (x - pivot) * slope + constant, plus `skip` where not null; slope and constant are those of the
  // tile's columns alone.
  void (*input_gradient)(Saved<Stored> saved, Tile tile, Affine<Number<Stored>> affine, Activation activation,
                         const Number<Stored>* slope, const Number<Stored>* constant, const Stored* skip, Stored* dx);
};

// For Stored = float, double, BFloat16; levels as in simd.rs.
template <typename Stored>
const BatchNormLoops<Stored>& batch_norm_loops(int level);

}  // namespace dingo
