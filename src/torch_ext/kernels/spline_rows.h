// Host side of spline.h: the splines of a batch's transformed features, many samples at a time.
#pragma once

#include <cstdint>

#include "spline.h"

namespace dingo {

// A batch [batch, width] of type T, some of whose features go through splines with unconstrained numbers of type P:
// for each sample and transformed feature, widths, heights and inner slopes one after the other.
template <typename T, typename P>
struct SplineBatch {
  SplineShape shape;
  bool inverse;
  const int64_t* features;  // places of the transformed features, each once
  int64_t num_features;
  int64_t batch, width;
  const T* inputs;
  int64_t inputs_stride;  // from one sample to the next
  const P* parameters;
  int64_t parameters_stride;  // the same; 0 where all samples share them
};

template <typename T, typename P>
struct SplineForward : SplineBatch<T, P> {
  T* outputs;    // [batch, width], packed
  T* logabsdet;  // [batch]
};

// What is null is 0, or not wanted.
template <typename T, typename P>
struct SplineBackward : SplineBatch<T, P> {
  const T* grad_outputs;
  int64_t grad_outputs_stride;
  const T* grad_logabsdet;
  int64_t grad_logabsdet_stride;
  T* grad_inputs;      // [batch, width], packed
  P* grad_parameters;  // [batch, parameters], packed
};

// Both use libtorch's threads. level: the instruction set, of simd.rs. Defined for float with parameters in float and
// bfloat16, and for double with double. The results depend neither on the level nor on the number of threads.
template <typename T, typename P>
void run(const SplineForward<T, P>& job, int level);
template <typename T, typename P>
void run(const SplineBackward<T, P>& job, int level);

}  // namespace dingo
