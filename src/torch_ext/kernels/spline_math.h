// Exponential, logarithm and softplus in double precision without branches and library calls, so that loops over them
// vectorize. Errors stay below 1e-15 of the result, except where said; a NaN stays one.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "portable.h"

namespace dingo {

// Adding it rounds a double below 2^51 to an integer, which then stands in the lowest bits.
constexpr double kRoundingShift = 6755399441055744.0;  // 1.5 * 2^52
constexpr double kLog2E = 1.4426950408889634;
// ln 2 in two parts; the first one has zeros at its end, so that its product with an exponent is exact.
constexpr double kLn2High = 0x1.62e42fefa38p-1;
constexpr double kLn2Low = 0x1.ef35793c7673p-45;

DINGO_INLINE uint64_t bits_of(double x) {
  uint64_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}

DINGO_INLINE double double_of(uint64_t bits) {
  double x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

// condition ? a : b, as arithmetic on bits: a compiler makes branches out of conditionals that it then cannot vectorize.
DINGO_INLINE double select(bool condition, double a, double b) {
#if defined(__CUDA_ARCH__)
  return condition ? a : b;
#else
  const uint64_t mask = -static_cast<uint64_t>(condition);
  return double_of((bits_of(a) & mask) | (bits_of(b) & ~mask));
#endif
}

// For x <= 0. Below -708, where exp gets close to the smallest normal number, it stays at that.
DINGO_INLINE double exp_nonpositive(double x) {
  x = x < -708.0 ? -708.0 : x;
  const double shifted = x * kLog2E + kRoundingShift;
  const double exponent = shifted - kRoundingShift;
  const double r = (x - exponent * kLn2High) - exponent * kLn2Low;
  // Minimax for (e^r - 1 - r) / r^2 on |r| <= ln(2) / 2, weighted so that e^r has a relative error of 3e-16.
  double p = 0x1.2707a3d243ac2p-22;
  p = p * r + 0x1.72e91ac8e9684p-19;
  p = p * r + 0x1.a01b7c517559fp-16;
  p = p * r + 0x1.a0198d58857ddp-13;
  p = p * r + 0x1.6c16c0c830c11p-10;
  p = p * r + 0x1.11111125b3d7cp-7;
  p = p * r + 0x1.55555555890c3p-5;
  p = p * r + 0x1.55555555507c6p-3;
  p = p * r + 0x1.ffffffffffed2p-2;
  const double power = double_of((bits_of(shifted) + 1023) << 52);
  return ((p * r) * r + r + 1.0) * power;
}

// For x > 0 and normal. Close to 1 the error is below 1e-16, not relative to the result.
DINGO_INLINE double log_positive(double x) {
  // x = 2^exponent * m with m from sqrt(1/2) to sqrt(2).
  constexpr uint64_t sqrt_half = 0x3fe6a09e667f3bcd;
  const uint64_t steps = bits_of(x) - sqrt_half;
  const double m = double_of((steps & 0x000fffffffffffff) + sqrt_half);
  // No instruction set before AVX-512 shifts 64 bits arithmetically: the bias keeps the number positive.
  const uint64_t biased = (steps + (uint64_t{1024} << 52)) >> 52;
  const double exponent = double_of(biased | 0x4330000000000000) - (4503599627370496.0 + 1024.0);
  // log m = 2 artanh(s).
  const double s = (m - 1.0) / (m + 1.0);
  const double z = s * s;
  double p = 2.0 / 21.0;
  p = p * z + 2.0 / 19.0;
  p = p * z + 2.0 / 17.0;
  p = p * z + 2.0 / 15.0;
  p = p * z + 2.0 / 13.0;
  p = p * z + 2.0 / 11.0;
  p = p * z + 2.0 / 9.0;
  p = p * z + 2.0 / 7.0;
  p = p * z + 2.0 / 5.0;
  p = p * z + 2.0 / 3.0;
  const double log_m = (p * z) * s + 2.0 * s;
  // x - x: the bits of a NaN would pass for a number.
  return exponent * kLn2High + (exponent * kLn2Low + log_m) + (x - x);
}

struct Softplus {
  double value;       // log(1 + e^x), to 1e-16
  double derivative;  // 1 / (1 + e^-x)
};

DINGO_INLINE Softplus softplus(double x) {
  const double magnitude = fabs(x);
  const double decayed = exp_nonpositive(-magnitude);
  const double share = 1.0 / (1.0 + decayed);
  return {0.5 * (x + magnitude) + log_positive(1.0 + decayed), select(x > 0.0, share, decayed * share)};
}

}  // namespace dingo
