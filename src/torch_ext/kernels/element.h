// How tensors' values are stored, and the type in which they are calculated.
#pragma once

#include <cstdint>

#include "portable.h"
#include "vector_math.h"

namespace dingo {

// As c10::BFloat16: the upper half of a float.
struct BFloat16 {
  uint16_t bits;
};

template <typename Stored>
struct Calculated {
  using Number = Stored;
};
template <>
struct Calculated<BFloat16> {
  using Number = float;
};
template <typename Stored>
using Number = typename Calculated<Stored>::Number;

DINGO_INLINE float number(float value) { return value; }
DINGO_INLINE double number(double value) { return value; }
DINGO_INLINE float number(BFloat16 value) { return float_of_bits(static_cast<int32_t>(value.bits) << 16); }

DINGO_INLINE void store(float value, float* place) { *place = value; }
DINGO_INLINE void store(double value, double* place) { *place = value; }
// To the nearest, ties to even; NaN stays NaN.
DINGO_INLINE void store(float value, BFloat16* place) {
  const uint32_t bits = static_cast<uint32_t>(bits_of_float(value));
  const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  place->bits = static_cast<uint16_t>(value == value ? rounded : 0x7fc0u);
}

}  // namespace dingo
