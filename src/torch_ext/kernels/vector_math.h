// Elementary functions without branches or tables, so that loops of them vectorize; in single precision to 1 or 2 units
// in the last place. The coefficients are minimax fits (Lawson's iteration) of our own. Multiply-adds are fused where
// they are written so, which saves a third of the time; the result is the same bits for every instruction set, through
// a library call on processors that lack the instruction.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "portable.h"

namespace dingo {

DINGO_INLINE float float_of_bits(int32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

DINGO_INLINE int32_t bits_of_float(float value) {
  int32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

DINGO_INLINE float multiply_add(float a, float b, float c) { return fmaf(a, b, c); }

// 2^n for n in [-126, 127].
DINGO_INLINE float power_of_two(int32_t n) { return float_of_bits((n + 127) << 23); }

// x = turns * ln 2 + rest, |rest| <= ln 2 / 2; for |x| < 2^15.
struct ReducedExponent {
  int32_t turns;
  float rest;
};

DINGO_INLINE ReducedExponent reduce_exponent(float x) {
  // Adding 1.5 * 2^23 rounds to a whole number, which then sits in the lowest bits.
  constexpr float shifter = 12582912.0f;
  const float shifted = multiply_add(x, 1.44269504f, shifter);
  const float turns = shifted - shifter;
  // ln 2 in two parts, since its error in single precision would be multiplied by `turns`.
  const float rest = multiply_add(turns, 1.9046542e-9f, multiply_add(turns, -0.693147182f, x));
  return {bits_of_float(shifted) - 0x4b400000, rest};
}

// exp(r) - 1 for |r| <= ln 2 / 2.
DINGO_INLINE float exponential_minus_one_near_zero(float r) {
  float sum = 0.00019790031f;
  sum = multiply_add(sum, r, 0.0013944979f);
  sum = multiply_add(sum, r, 0.008333499f);
  sum = multiply_add(sum, r, 0.04166629f);
  sum = multiply_add(sum, r, 0.16666666f);
  sum = multiply_add(sum, r, 0.5f);
  return multiply_add(r * r, sum, r);
}

// exp(x), with gradual underflow and infinity beyond the range; NaN stays NaN.
DINGO_INLINE float exponential(float x) {
  x = x < -104.0f ? -104.0f : x;
  x = x > 89.0f ? 89.0f : x;
  const ReducedExponent reduced = reduce_exponent(x);
  // In two steps, since 2^turns itself may be out of range.
  const int32_t half = reduced.turns >> 1;
  const float value = 1.0f + exponential_minus_one_near_zero(reduced.rest);
  return value * power_of_two(half) * power_of_two(reduced.turns - half);
}

DINGO_INLINE double exponential(double x) { return exp(x); }

// exp(x) - 1 for x <= 0, without cancellation near zero; NaN stays NaN.
DINGO_INLINE float exponential_minus_one_below_zero(float x) {
  // From here on the result rounds to -1.
  x = x < -20.0f ? -20.0f : x;
  const ReducedExponent reduced = reduce_exponent(x);
  const float scale = power_of_two(reduced.turns);
  return multiply_add(scale, exponential_minus_one_near_zero(reduced.rest), scale - 1.0f);
}

DINGO_INLINE double exponential_minus_one_below_zero(double x) { return expm1(x); }

// 1 / (1 + exp(-x)).
template <typename Number>
DINGO_INLINE Number sigmoid(Number x) {
  return Number(1) / (Number(1) + exponential(-x));
}

DINGO_INLINE float error_function(float x) {
  const float t = fabsf(x);
  const float s = x * x;
  // erf(x) / x - 1, up to 0.93.
  float near = -0.0005976894f;
  near = multiply_add(near, s, 0.0049909805f);
  near = multiply_add(near, s, -0.026765568f);
  near = multiply_add(near, s, 0.112818025f);
  near = multiply_add(near, s, -0.37612495f);
  near = multiply_add(near, s, 0.12837915f);
  near = multiply_add(x, near, x);
  // ln(1 - erf(t)) from there on; beyond 3.95 the result rounds to 1.
  const float u = t > 3.95f ? 3.95f : t;
  float far = 0.00019494741f;
  far = multiply_add(far, u, -0.0030336988f);
  far = multiply_add(far, u, 0.022189803f);
  far = multiply_add(far, u, -0.10385643f);
  far = multiply_add(far, u, -0.6372657f);
  far = multiply_add(far, u, -1.1276275f);
  far = multiply_add(far, u, -0.00020699947f);
  far = 1.0f - exponential(far);
  return t < 0.93f ? near : copysignf(far, x);
}

DINGO_INLINE double error_function(double x) { return erf(x); }

}  // namespace dingo
