// From polarizations to a detector's whitened, noisy strain, one frequency bin at a time.
#pragma once

#include <cmath>
#include <cstdint>

#include "philox.h"
#include "portable.h"

namespace dingo {

struct Complex {
  float real, imaginary;
};

DINGO_INLINE Complex multiply(Complex a, Complex b) {
  return {a.real * b.real - a.imaginary * b.imaginary, a.real * b.imaginary + a.imaginary * b.real};
}

// A complex number from three products of real matrices (Gauss's way to multiply complex numbers): those of the real parts,
// of the imaginary parts, and of the sums of both.
DINGO_INLINE Complex from_products(float of_real, float of_imaginary, float of_sums) {
  return {of_real - of_imaginary, of_sums - of_real - of_imaginary};
}

// Strain of a source in a detector: plus * h_plus + cross * h_cross, turned by the phase of the arrival time.
DINGO_INLINE Complex project(Complex h_plus, Complex h_cross, float plus, float cross, Complex phase) {
  const Complex sum = {plus * h_plus.real + cross * h_cross.real, plus * h_plus.imaginary + cross * h_cross.imaginary};
  return multiply(sum, phase);
}

// The phases exp(-2 pi i k turns) of the bins k = first, first + 1, … in chunks of kNoiseChunk bins: a table for the
// chunk, times a phase for its start. Both are built in double precision by repeated multiplication from two calls of
// sine and cosine; the relative error stays below 1e-11 up to millions of bins, so the rounding to float dominates (1e-7).
struct PhaseTable {
  float cosine[kNoiseChunk], sine[kNoiseChunk];
  double start_cosine, start_sine, step_cosine, step_sine;
  int64_t next_bin;  // for the caller

  // turns: delay times bin width. Only its fraction counts at integer bins, which keeps the angles small.
  DINGO_INLINE void begin(double turns, int64_t first) {
    constexpr double minus_two_pi = -6.283185307179586476925286766559;
    const double start = turns * static_cast<double>(first);
    start_cosine = cos(minus_two_pi * (start - floor(start)));
    start_sine = sin(minus_two_pi * (start - floor(start)));
    step_cosine = cos(minus_two_pi * (turns - floor(turns)));
    step_sine = sin(minus_two_pi * (turns - floor(turns)));
    double c[kNoiseChunk], s[kNoiseChunk];
    c[0] = 1.0;
    s[0] = 0.0;
    // With the first n phases and the step's n-th power, the next n; the step ends as its kNoiseChunk-th power.
    for (int n = 1; n < kNoiseChunk; n *= 2) {
      for (int j = 0; j < n; ++j) {
        c[j + n] = c[j] * step_cosine - s[j] * step_sine;
        s[j + n] = c[j] * step_sine + s[j] * step_cosine;
      }
      const double squared = step_cosine * step_cosine - step_sine * step_sine;
      step_sine = 2.0 * step_cosine * step_sine;
      step_cosine = squared;
    }
    for (int j = 0; j < kNoiseChunk; ++j) {
      cosine[j] = static_cast<float>(c[j]);
      sine[j] = static_cast<float>(s[j]);
    }
  }

  // The phase of the present chunk's first bin.
  DINGO_INLINE Complex start() const { return {static_cast<float>(start_cosine), static_cast<float>(start_sine)}; }

  DINGO_INLINE void next_chunk() {
    const double c = start_cosine * step_cosine - start_sine * step_sine;
    start_sine = start_cosine * step_sine + start_sine * step_cosine;
    start_cosine = c;
  }
};

}  // namespace dingo
