// The end of a gated residual block, y = skip + a * sigmoid(gate), one value at a time; and the loops of
// gated_residual.cpp over rows. Gated linear units: Dauphin et al. 2017, arXiv:1612.08083.
#pragma once

#include <cstdint>

#include "element.h"
#include "portable.h"
#include "vector_math.h"

namespace dingo {

template <typename Number>
DINGO_INLINE Number gated_residual(Number skip, Number a, Number gate) {
  return skip + a * sigmoid(gate);
}

// The gradients of a and gate.
template <typename Number>
struct GatedGradients {
  Number a, gate;
};

template <typename Number>
DINGO_INLINE GatedGradients<Number> gated_gradients(Number dy, Number a, Number gate) {
  const Number open = sigmoid(gate);
  const Number da = dy * open;
  return {da, da * a * (Number(1) - open)};
}

// Rows of matrices of the same width: contiguous, but for the gate's, which are `gate_stride` values apart.
template <typename Stored>
struct GatedLoops {
  void (*forward)(const Stored* skip, const Stored* a, const Stored* gate, int64_t gate_stride, int64_t rows,
                  int64_t features, Stored* y);
  // da or dgate may be null.
  void (*backward)(const Stored* dy, const Stored* a, const Stored* gate, int64_t gate_stride, int64_t rows,
                   int64_t features, Stored* da, Stored* dgate);
};

// For Stored = float, double, BFloat16; levels as in simd.rs.
template <typename Stored>
const GatedLoops<Stored>& gated_loops(int level);

}  // namespace dingo
