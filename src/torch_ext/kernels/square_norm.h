// The squared norm of a stretch of memory, in double precision and in an order of additions that depends on neither the
// vector width nor the number of threads.
#pragma once

#include <cstdint>

#include "portable.h"

namespace dingo {

// Sums side by side: wide enough for four independent additions of the widest vectors.
constexpr int kNormLanes = 32;

// Of elements times scale. A float's square cannot overflow a double, so that for T = float the result is finite if and
// only if every element is.
template <typename T>
DINGO_INLINE double square_norm(const T* elements, int64_t count, double scale) {
  double lanes[kNormLanes] = {};
  const T factor = static_cast<T>(scale);
  const int64_t whole = count / kNormLanes * kNormLanes;
  constexpr int ahead = 4096 / sizeof(T), line = 64 / sizeof(T);
  for (int64_t i = 0; i < whole; i += kNormLanes) {
    for (int next = 0; next < kNormLanes; next += line) DINGO_PREFETCH(elements + i + next + ahead);
    for (int lane = 0; lane < kNormLanes; ++lane) {
      const double element = elements[i + lane] * factor;
      lanes[lane] += element * element;
    }
  }
  for (int64_t i = whole; i < count; ++i) {
    const double element = elements[i] * factor;
    lanes[i - whole] += element * element;
  }
  double sum = 0.0;
  for (int lane = 0; lane < kNormLanes; ++lane) sum += lanes[lane];
  return sum;
}

}  // namespace dingo
