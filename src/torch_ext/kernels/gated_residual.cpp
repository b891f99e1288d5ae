// The loops of gated_residual.h, built for several instruction sets.

#include "gated_residual.h"

namespace dingo {
namespace {

template <typename Stored>
DINGO_INLINE void forward(const Stored* skip, const Stored* a, const Stored* gate, int64_t gate_stride, int64_t rows,
                          int64_t features, Stored* y) {
  for (int64_t i = 0; i < rows; ++i) {
    const Stored* gates = gate + i * gate_stride;
    const int64_t row = i * features;
    DINGO_INDEPENDENT_ITERATIONS
    for (int64_t j = 0; j < features; ++j) {
      store(gated_residual(number(skip[row + j]), number(a[row + j]), number(gates[j])), y + row + j);
    }
  }
}

template <bool want_a, bool want_gate, typename Stored>
DINGO_INLINE void backward_of(const Stored* dy, const Stored* a, const Stored* gate, int64_t gate_stride, int64_t rows,
                              int64_t features, Stored* da, Stored* dgate) {
  for (int64_t i = 0; i < rows; ++i) {
    const Stored* gates = gate + i * gate_stride;
    const int64_t row = i * features;
    DINGO_INDEPENDENT_ITERATIONS
    for (int64_t j = 0; j < features; ++j) {
      const auto gradients = gated_gradients(number(dy[row + j]), number(a[row + j]), number(gates[j]));
      if constexpr (want_a) store(gradients.a, da + row + j);
      if constexpr (want_gate) store(gradients.gate, dgate + row + j);
    }
  }
}

template <typename Stored>
DINGO_INLINE void backward(const Stored* dy, const Stored* a, const Stored* gate, int64_t gate_stride, int64_t rows,
                           int64_t features, Stored* da, Stored* dgate) {
  if (dgate == nullptr) {
    backward_of<true, false>(dy, a, gate, gate_stride, rows, features, da, dgate);
  } else if (da == nullptr) {
    backward_of<false, true>(dy, a, gate, gate_stride, rows, features, da, dgate);
  } else {
    backward_of<true, true>(dy, a, gate, gate_stride, rows, features, da, dgate);
  }
}

// One build of the loops.
#define DINGO_GATED_BUILD(Build, TARGET)                                                                           \
  template <typename Stored>                                                                                       \
  struct Build {                                                                                                   \
    TARGET static void forward(const Stored* skip, const Stored* a, const Stored* gate, int64_t gate_stride,       \
                               int64_t rows, int64_t features, Stored* y) {                                        \
      dingo::forward(skip, a, gate, gate_stride, rows, features, y);                                               \
    }                                                                                                              \
    TARGET static void backward(const Stored* dy, const Stored* a, const Stored* gate, int64_t gate_stride,        \
                                int64_t rows, int64_t features, Stored* da, Stored* dgate) {                       \
      dingo::backward(dy, a, gate, gate_stride, rows, features, da, dgate);                                        \
    }                                                                                                              \
    static constexpr GatedLoops<Stored> loops = {forward, backward};                                               \
  };

DINGO_GATED_BUILD(Baseline, )
DINGO_GATED_BUILD(Avx2, DINGO_AVX2)
DINGO_GATED_BUILD(Avx512, DINGO_AVX512)

}  // namespace

template <typename Stored>
const GatedLoops<Stored>& gated_loops(int level) {
  return level == 2 ? Avx512<Stored>::loops : level == 1 ? Avx2<Stored>::loops : Baseline<Stored>::loops;
}

// Double precision is for tests.
template <>
const GatedLoops<double>& gated_loops<double>(int) {
  return Baseline<double>::loops;
}

template const GatedLoops<float>& gated_loops<float>(int);
template const GatedLoops<BFloat16>& gated_loops<BFloat16>(int);

}  // namespace dingo
