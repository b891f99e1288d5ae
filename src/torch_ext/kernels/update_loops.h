// The rules of update.h over a stretch of memory.
#pragma once

#include <cstdint>

#include "update.h"

namespace dingo {

enum class Rule : uint32_t { adam = 0, sgd = 1, rms_prop = 2, adagrad = 3 };

// A rule and its options; the layout of update.rs's `ElementUpdate`.
struct ElementUpdate {
  Rule rule;
  union {
    AdamOptions adam;
    SgdOptions sgd;
    RmsPropOptions rms_prop;
    AdagradOptions adagrad;
  };

  int slots() const {
    switch (rule) {
      case Rule::adam: return adam.amsgrad ? 3 : 2;
      case Rule::sgd: return sgd.has_buffer ? 1 : 0;
      case Rule::rms_prop: return 1 + rms_prop.has_buffer + rms_prop.centered;
      case Rule::adagrad: return 1;
    }
    return 0;
  }
};

constexpr int kMaxSlots = 3;

// A stretch of a parameter, its gradient and its slots; those that its rule does not have are null.
struct UpdateSpan {
  void* parameter;
  const void* gradient;
  void* slots[kMaxSlots];
};

template <typename T, typename R>
DINGO_INLINE void update_loop(const R& rule, const UpdateSpan& span, int64_t first, int64_t count, T inverse_scale) {
  T* parameter = static_cast<T*>(span.parameter) + first;
  const T* gradient = static_cast<const T*>(span.gradient) + first;
  T* a = R::slots > 0 ? static_cast<T*>(span.slots[0]) + first : nullptr;
  T* b = R::slots > 1 ? static_cast<T*>(span.slots[1]) + first : nullptr;
  T* c = R::slots > 2 ? static_cast<T*>(span.slots[2]) + first : nullptr;
  constexpr int ahead = 2048 / sizeof(T), line = 64 / sizeof(T), block = 4 * line;
  for (int64_t start = 0; start < count; start += block) {
    for (int next = 0; next < block; next += line) {
      const int64_t at = start + next + ahead;
      DINGO_PREFETCH(parameter + at);
      DINGO_PREFETCH(gradient + at);
      if constexpr (R::slots > 0) DINGO_PREFETCH(a + at);
      if constexpr (R::slots > 1) DINGO_PREFETCH(b + at);
      if constexpr (R::slots > 2) DINGO_PREFETCH(c + at);
    }
    const int64_t end = start + block < count ? start + block : count;
    DINGO_INDEPENDENT_ITERATIONS
    for (int64_t i = start; i < end; ++i) {
      T none = 0;
      T p = parameter[i];
      T s0 = R::slots > 0 ? a[i] : none, s1 = R::slots > 1 ? b[i] : none, s2 = R::slots > 2 ? c[i] : none;
      rule(gradient[i] * inverse_scale, p, s0, s1, s2);
      parameter[i] = p;
      if constexpr (R::slots > 0) a[i] = s0;
      if constexpr (R::slots > 1) b[i] = s1;
      if constexpr (R::slots > 2) c[i] = s2;
    }
  }
}

// Elements first to first + count of the span; gradients are multiplied by inverse_scale before use.
template <typename T>
DINGO_INLINE void update(const ElementUpdate& u, const UpdateSpan& span, int64_t first, int64_t count, double scale) {
  const T inverse_scale = static_cast<T>(scale);
  switch (u.rule) {
    case Rule::adam:
      if (u.adam.amsgrad) return update_loop(Adam<T, true>(u.adam), span, first, count, inverse_scale);
      return update_loop(Adam<T, false>(u.adam), span, first, count, inverse_scale);
    case Rule::sgd:
      if (!u.sgd.has_buffer) return update_loop(Sgd<T, false, false>(u.sgd), span, first, count, inverse_scale);
      if (u.sgd.nesterov) return update_loop(Sgd<T, true, true>(u.sgd), span, first, count, inverse_scale);
      return update_loop(Sgd<T, true, false>(u.sgd), span, first, count, inverse_scale);
    case Rule::rms_prop: {
      const RmsPropOptions& o = u.rms_prop;
      if (o.has_buffer && o.centered) return update_loop(RmsProp<T, true, true>(o), span, first, count, inverse_scale);
      if (o.has_buffer) return update_loop(RmsProp<T, true, false>(o), span, first, count, inverse_scale);
      if (o.centered) return update_loop(RmsProp<T, false, true>(o), span, first, count, inverse_scale);
      return update_loop(RmsProp<T, false, false>(o), span, first, count, inverse_scale);
    }
    case Rule::adagrad:
      return update_loop(Adagrad<T>(u.adagrad), span, first, count, inverse_scale);
  }
}

}  // namespace dingo
