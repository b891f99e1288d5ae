// The activation functions of the networks and their derivatives, with PyTorch's default constants.
#pragma once

#include <cstdint>

#include "portable.h"
#include "vector_math.h"

namespace dingo {

// The numbers are those of activation.rs.
enum class Activation : int32_t { None = 0, Elu = 1, Relu = 2, LeakyRelu = 3, Gelu = 4 };

constexpr double kLeakyReluSlope = 0.01;

template <Activation activation, typename Number>
DINGO_INLINE Number activate(Number z) {
  if constexpr (activation == Activation::Elu) {
    const Number below = exponential_minus_one_below_zero(z);
    return z > Number(0) ? z : below;
  } else if constexpr (activation == Activation::Relu) {
    return z < Number(0) ? Number(0) : z;
  } else if constexpr (activation == Activation::LeakyRelu) {
    return z > Number(0) ? z : z * Number(kLeakyReluSlope);
  } else if constexpr (activation == Activation::Gelu) {
    return z * (Number(0.5) + Number(0.5) * error_function(z * Number(0.70710678118654752440)));
  } else {
    return z;
  }
}

// Whether the derivative is found from the output, or else from the input. In bfloat16 the output of elu leaves an error
// of 2^-9 at most, as much as the rounding of a gradient to that type.
template <Activation activation>
constexpr bool slope_from_output() {
  return activation != Activation::Gelu;
}

// The derivative; `value` is the output or the input, as `slope_from_output` has it.
template <Activation activation, typename Number>
DINGO_INLINE Number slope(Number value) {
  if constexpr (activation == Activation::Elu) {
    return value > Number(0) ? Number(1) : value + Number(1);
  } else if constexpr (activation == Activation::Relu) {
    return value > Number(0) ? Number(1) : Number(0);
  } else if constexpr (activation == Activation::LeakyRelu) {
    return value > Number(0) ? Number(1) : Number(kLeakyReluSlope);
  } else if constexpr (activation == Activation::Gelu) {
    const Number cumulative = Number(0.5) + Number(0.5) * error_function(value * Number(0.70710678118654752440));
    return cumulative + value * (Number(0.39894228040143267794) * exponential(Number(-0.5) * value * value));
  } else {
    return Number(1);
  }
}

}  // namespace dingo

// Calls `function<activation, ...>(...)` for the activation known at run time only.
#define DINGO_WITH_ACTIVATION(activation, Stored, function, ...)                                               \
  switch (activation) {                                                                                        \
    case ::dingo::Activation::None: function<::dingo::Activation::None, Stored>(__VA_ARGS__); break;           \
    case ::dingo::Activation::Elu: function<::dingo::Activation::Elu, Stored>(__VA_ARGS__); break;             \
    case ::dingo::Activation::Relu: function<::dingo::Activation::Relu, Stored>(__VA_ARGS__); break;           \
    case ::dingo::Activation::LeakyRelu: function<::dingo::Activation::LeakyRelu, Stored>(__VA_ARGS__); break; \
    case ::dingo::Activation::Gelu: function<::dingo::Activation::Gelu, Stored>(__VA_ARGS__); break;           \
  }
