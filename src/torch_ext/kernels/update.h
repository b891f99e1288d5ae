// What optimizers do to one element of a parameter, in PyTorch's formulas and order of operations.
//
// A rule is built from its options in double precision and computes in T. It takes the gradient and changes the parameter
// and its own slots; those it does not have are neither read nor written.
#pragma once

#include <cmath>

#include "portable.h"

namespace dingo {

DINGO_INLINE float square_root(float value) { return sqrtf(value); }
DINGO_INLINE double square_root(double value) { return sqrt(value); }

// from + weight (to - from), by PyTorch's choice of the more accurate of two forms.
template <typename T>
DINGO_INLINE T lerp(T from, T to, T weight) {
  return weight < T(0.5) ? from + weight * (to - from) : to - (to - from) * (T(1) - weight);
}

// The options of each rule as update.rs lays them out. Those that change from step to step are folded in already.

struct AdamOptions {
  double step_size;      // learning rate over the first bias correction
  double beta1, beta2;
  double root_correction;  // square root of the second bias correction
  double eps;
  double l2;      // weight decay through the gradient
  double shrink;  // what AdamW's decay leaves of a parameter: 1 - lr * weight_decay, else 1
  bool amsgrad;
};

struct SgdOptions {
  double lr, l2;
  double keep, take;      // buffer = keep * buffer + take * gradient
  double momentum;
  bool has_buffer, nesterov;
};

struct RmsPropOptions {
  double lr, alpha, eps, l2, momentum;
  bool has_buffer, centered;
};

struct AdagradOptions {
  double lr, eps, l2;
};

// Slots: exp_avg, exp_avg_sq and with amsgrad max_exp_avg_sq.
template <typename T, bool amsgrad>
struct Adam {
  T step_size, beta2, root_correction, eps, l2, shrink, one_minus_beta1, one_minus_beta2;
  static constexpr int slots = amsgrad ? 3 : 2;

  explicit Adam(const AdamOptions& o)
      : step_size(o.step_size), beta2(o.beta2), root_correction(o.root_correction), eps(o.eps), l2(o.l2),
        shrink(o.shrink), one_minus_beta1(1.0 - o.beta1), one_minus_beta2(1.0 - o.beta2) {}

  DINGO_INLINE void operator()(T gradient, T& parameter, T& exp_avg, T& exp_avg_sq, T& max_exp_avg_sq) const {
    gradient += l2 * parameter;
    const T average = lerp(exp_avg, gradient, one_minus_beta1);
    const T square = beta2 * exp_avg_sq + (one_minus_beta2 * gradient) * gradient;
    exp_avg = average;
    exp_avg_sq = square;
    T largest = square;
    if constexpr (amsgrad) {
      // Keeps a NaN, as PyTorch's maximum does.
      largest = max_exp_avg_sq >= square ? max_exp_avg_sq : square;
      max_exp_avg_sq = largest;
    }
    const T denominator = square_root(largest) / root_correction + eps;
    parameter = shrink * parameter - (step_size * average) / denominator;
  }
};

// Slot: momentum_buffer, if any.
template <typename T, bool has_buffer, bool nesterov>
struct Sgd {
  T lr, l2, keep, take, momentum;
  static constexpr int slots = has_buffer ? 1 : 0;

  explicit Sgd(const SgdOptions& o) : lr(o.lr), l2(o.l2), keep(o.keep), take(o.take), momentum(o.momentum) {}

  DINGO_INLINE void operator()(T gradient, T& parameter, T& buffer, T&, T&) const {
    gradient += l2 * parameter;
    T direction = gradient;
    if constexpr (has_buffer) {
      const T average = keep * buffer + take * gradient;
      buffer = average;
      direction = nesterov ? gradient + momentum * average : average;
    }
    parameter -= lr * direction;
  }
};

// Slots: square_avg, then those of momentum_buffer and grad_avg that there are.
template <typename T, bool has_buffer, bool centered>
struct RmsProp {
  T lr, alpha, eps, l2, momentum, one_minus_alpha;
  static constexpr int slots = 1 + (has_buffer ? 1 : 0) + (centered ? 1 : 0);

  explicit RmsProp(const RmsPropOptions& o)
      : lr(o.lr), alpha(o.alpha), eps(o.eps), l2(o.l2), momentum(o.momentum), one_minus_alpha(1.0 - o.alpha) {}

  DINGO_INLINE void operator()(T gradient, T& parameter, T& square_avg, T& second, T& third) const {
    T& buffer = second;
    T& grad_avg = has_buffer ? third : second;
    gradient += l2 * parameter;
    const T square = alpha * square_avg + (one_minus_alpha * gradient) * gradient;
    square_avg = square;
    T variance = square;
    if constexpr (centered) {
      const T average = lerp(grad_avg, gradient, one_minus_alpha);
      grad_avg = average;
      variance = square - average * average;
    }
    const T denominator = square_root(variance) + eps;
    if constexpr (has_buffer) {
      const T average = momentum * buffer + gradient / denominator;
      buffer = average;
      parameter -= lr * average;
    } else {
      parameter -= (lr * gradient) / denominator;
    }
  }
};

// Slot: sum.
template <typename T>
struct Adagrad {
  T lr, eps, l2;
  static constexpr int slots = 1;

  explicit Adagrad(const AdagradOptions& o) : lr(o.lr), eps(o.eps), l2(o.l2) {}

  DINGO_INLINE void operator()(T gradient, T& parameter, T& sum, T&, T&) const {
    gradient += l2 * parameter;
    const T squares = sum + gradient * gradient;
    sum = squares;
    parameter -= (lr * gradient) / (square_root(squares) + eps);
  }
};

}  // namespace dingo
