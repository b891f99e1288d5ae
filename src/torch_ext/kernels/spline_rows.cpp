#include "spline_rows.h"

#include <ATen/Parallel.h>
#include <c10/core/CPUAllocator.h>
#include <c10/util/BFloat16.h>

#include <algorithm>

namespace dingo {
namespace {

// Samples side by side: two of the widest vectors.
constexpr int kLanes = 16;

// The numbers of kLanes splines while they are computed.
struct Workspace {
  explicit Workspace(const SplineShape& shape)
      : memory(c10::GetCPUAllocator()->allocate(kLanes * (shape.parameters() + 2 * shape.bins) * sizeof(double))),
        width_shares(static_cast<double*>(memory.get())),
        height_shares(width_shares + kLanes * shape.bins),
        parameters(height_shares + kLanes * shape.bins) {}

  c10::DataPtr memory;
  double *width_shares, *height_shares;  // [bins][kLanes]
  double* parameters;                    // [3 * bins - 1][kLanes]
};

// Some samples of the batch, not more than kLanes.
struct Rows {
  int64_t first;
  int count;
};

// One feature of kLanes samples: inputs, the bins they fall into, and the pieces of the splines there.
template <bool Inverse>
struct Lanes {
  double inputs[kLanes];  // 0 in the place of what is outside and of lanes that are not used
  double inside[kLanes];  // 1, or 0 outside
  SplineBins<kLanes> bins;
  // Slopes at the ends that are inner knots, and their derivatives with respect to the unconstrained numbers.
  double left[kLanes], left_derivative[kLanes], right[kLanes], right_derivative[kLanes];

  template <typename T, typename P>
  DINGO_INLINE void load(const SplineBatch<T, P>& job, Rows rows, int64_t feature, const Workspace& work) {
    const int64_t numbers = job.shape.parameters(), bins_per_spline = job.shape.bins;
    if (rows.count < kLanes) {
      std::fill(work.parameters, work.parameters + numbers * kLanes, 0.0);
      std::fill(inputs, inputs + kLanes, 0.0);
    }
    for (int l = 0; l < rows.count; ++l) {
      const int64_t row = rows.first + l;
      inputs[l] = job.inputs[row * job.inputs_stride + job.features[feature]];
      const P* source = job.parameters + row * job.parameters_stride + feature * numbers;
      for (int64_t k = 0; k < numbers; ++k) work.parameters[k * kLanes + l] = static_cast<double>(source[k]);
    }
    const double bound = job.shape.tail_bound;
    for (int l = 0; l < kLanes; ++l) {
      // A NaN is not inside: it passes unchanged and shows up in the loss.
      const bool is_inside = fabs(inputs[l]) <= bound;
      inside[l] = select(is_inside, 1.0, 0.0);
      inputs[l] = select(is_inside, inputs[l], 0.0);
    }
    const double* heights = work.parameters + bins_per_spline * kLanes;
    spline_shares<kLanes>(bins_per_spline, job.shape.scale, work.parameters, work.width_shares);
    spline_shares<kLanes>(bins_per_spline, job.shape.scale, heights, work.height_shares);
    bins.template find<Inverse>(job.shape, inputs, work.width_shares, work.height_shares,
                                heights + bins_per_spline * kLanes);
    softplus_of(bins.left, job.shape.min_derivative, left, left_derivative);
    softplus_of(bins.right, job.shape.min_derivative, right, right_derivative);
  }

  DINGO_INLINE static void softplus_of(const double* unconstrained, double least, double* value, double* derivative) {
    DINGO_INDEPENDENT_ITERATIONS
    for (int l = 0; l < kLanes; ++l) {
      const Softplus result = softplus(unconstrained[l]);
      value[l] = least + result.value;
      derivative[l] = result.derivative;
    }
  }

  // The tails have slope 1, and so have the ends.
  DINGO_INLINE SplinePiece piece(const SplineShape& shape, int l) const {
    const double interval = 2.0 * shape.tail_bound;
    const double free_width = 1.0 - shape.min_width * shape.bins, free_height = 1.0 - shape.min_height * shape.bins;
    const double last = static_cast<double>(shape.bins - 1);
    return {interval * (bins.index[l] * shape.min_width + free_width * bins.width_before[l]) - shape.tail_bound,
            interval * (bins.index[l] * shape.min_height + free_height * bins.height_before[l]) - shape.tail_bound,
            interval * (shape.min_width + free_width * bins.width_share[l]),
            interval * (shape.min_height + free_height * bins.height_share[l]),
            select(bins.index[l] == 0.0, 1.0, left[l]),
            select(bins.index[l] == last, 1.0, right[l])};
  }

  DINGO_INLINE SplinePoint point(const SplinePiece& piece, int l) const {
    return spline_point(piece, Inverse ? spline_inverse_theta(piece, inputs[l]) : (inputs[l] - piece.x) / piece.width);
  }
};

template <bool Inverse, typename T, typename P>
DINGO_INLINE void forward_rows(const SplineForward<T, P>& job, Rows rows, const Workspace& work) {
  for (int l = 0; l < rows.count; ++l) {
    const T* source = job.inputs + (rows.first + l) * job.inputs_stride;
    std::copy(source, source + job.width, job.outputs + (rows.first + l) * job.width);
  }
  double total[kLanes] = {};
  for (int64_t feature = 0; feature < job.num_features; ++feature) {
    Lanes<Inverse> lanes;
    lanes.load(job, rows, feature, work);
    double outputs[kLanes], log_slope[kLanes];
    const SplineShape shape = job.shape;
    DINGO_INDEPENDENT_ITERATIONS
    for (int l = 0; l < kLanes; ++l) {
      const SplinePiece piece = lanes.piece(shape, l);
      const SplinePoint point = lanes.point(piece, l);
      outputs[l] = Inverse ? piece.x + point.theta * piece.width : spline_value(piece, point);
      log_slope[l] = log_positive(spline_slope(point));
    }
    for (int l = 0; l < kLanes; ++l) {
      const double log_derivative = Inverse ? -log_slope[l] : log_slope[l];
      total[l] += select(lanes.inside[l] != 0.0, log_derivative, 0.0);
    }
    for (int l = 0; l < rows.count; ++l) {
      T* place = job.outputs + (rows.first + l) * job.width + job.features[feature];
      *place = lanes.inside[l] != 0.0 ? static_cast<T>(outputs[l]) : *place;
    }
  }
  for (int l = 0; l < rows.count; ++l) job.logabsdet[rows.first + l] = static_cast<T>(total[l]);
}

// The gradient along one axis with respect to the unconstrained sizes of a lane's bins is share * (slope - mean), with
// the slope below for the bins before the present one, for itself, and 0 for those after it.
struct SizeGradient {
  double before[kLanes], here[kLanes], mean[kLanes];

  DINGO_INLINE void set(int l, double factor, double corner, double size, double share_before, double share) {
    before[l] = factor * corner;
    here[l] = factor * size;
    mean[l] = before[l] * share_before + here[l] * share;
  }

  DINGO_INLINE void write(int64_t bins, const double* index, const double* shares, double* output) const {
    for (int64_t k = 0; k < bins; ++k) {
      const double place = static_cast<double>(k);
      DINGO_INDEPENDENT_ITERATIONS
      for (int l = 0; l < kLanes; ++l) {
        const double slope = select(place < index[l], before[l], select(place == index[l], here[l], 0.0));
        output[k * kLanes + l] = shares[k * kLanes + l] * (slope - mean[l]);
      }
    }
  }
};

template <bool Inverse, typename T, typename P>
DINGO_INLINE void backward_rows(const SplineBackward<T, P>& job, Rows rows, const Workspace& work) {
  const SplineShape shape = job.shape;
  double grad_logabsdet[kLanes] = {};
  for (int l = 0; l < rows.count; ++l) {
    const int64_t row = rows.first + l;
    if (job.grad_logabsdet != nullptr) grad_logabsdet[l] = job.grad_logabsdet[row * job.grad_logabsdet_stride];
    if (job.grad_inputs == nullptr) continue;
    T* target = job.grad_inputs + row * job.width;
    if (job.grad_outputs == nullptr) {
      std::fill(target, target + job.width, T(0));
    } else {
      const T* source = job.grad_outputs + row * job.grad_outputs_stride;
      std::copy(source, source + job.width, target);
    }
  }
  const double width_factor = 2.0 * shape.tail_bound * (1.0 - shape.min_width * shape.bins) * shape.scale;
  const double height_factor = 2.0 * shape.tail_bound * (1.0 - shape.min_height * shape.bins) * shape.scale;
  for (int64_t feature = 0; feature < job.num_features; ++feature) {
    Lanes<Inverse> lanes;
    lanes.load(job, rows, feature, work);
    const SplineBins<kLanes>& bins = lanes.bins;
    double grad_outputs[kLanes] = {}, grad_inputs[kLanes], grad_left[kLanes], grad_right[kLanes];
    if (job.grad_outputs != nullptr) {
      const T* source = job.grad_outputs + rows.first * job.grad_outputs_stride + job.features[feature];
      for (int l = 0; l < rows.count; ++l) grad_outputs[l] = source[l * job.grad_outputs_stride];
    }
    SizeGradient widths, heights;
    DINGO_INDEPENDENT_ITERATIONS
    for (int l = 0; l < kLanes; ++l) {
      const SplinePiece piece = lanes.piece(shape, l);
      const SplinePoint point = lanes.point(piece, l);
      double value = select(lanes.inside[l] != 0.0, grad_outputs[l], 0.0);
      double log_slope = select(lanes.inside[l] != 0.0, grad_logabsdet[l], 0.0);
      if (Inverse) {
        // The output is the x where the spline has the value of the input, and the log slope taken there is negative:
        // what the output asks for is passed on to the input by 1 / slope, and to the spline, at fixed x, by -1 / slope.
        log_slope = -log_slope;
        value = -(value + log_slope * spline_log_slope_derivative(piece, point)) / spline_slope(point);
      }
      const SplinePiece gradient = spline_gradient(piece, point, value, log_slope);
      grad_inputs[l] = Inverse ? -value : -gradient.x;
      grad_left[l] = gradient.left_derivative * lanes.left_derivative[l];
      grad_right[l] = gradient.right_derivative * lanes.right_derivative[l];
      widths.set(l, width_factor, gradient.x, gradient.width, bins.width_before[l], bins.width_share[l]);
      heights.set(l, height_factor, gradient.y, gradient.height, bins.height_before[l], bins.height_share[l]);
    }
    if (job.grad_inputs != nullptr) {
      for (int l = 0; l < rows.count; ++l) {
        T* place = job.grad_inputs + (rows.first + l) * job.width + job.features[feature];
        *place = lanes.inside[l] != 0.0 ? static_cast<T>(grad_inputs[l]) : *place;
      }
    }
    if (job.grad_parameters == nullptr) continue;
    double* output = work.parameters;
    widths.write(shape.bins, bins.index, work.width_shares, output);
    heights.write(shape.bins, bins.index, work.height_shares, output + shape.bins * kLanes);
    double* derivatives = output + 2 * shape.bins * kLanes;
    for (int64_t k = 1; k < shape.bins; ++k) {
      // The knot between bins k - 1 and k.
      const double place = static_cast<double>(k);
      DINGO_INDEPENDENT_ITERATIONS
      for (int l = 0; l < kLanes; ++l) {
        const double from_right = select(bins.index[l] == place, grad_left[l], 0.0);
        derivatives[(k - 1) * kLanes + l] = select(bins.index[l] == place - 1.0, grad_right[l], from_right);
      }
    }
    const int64_t numbers = shape.parameters();
    for (int l = 0; l < rows.count; ++l) {
      P* target = job.grad_parameters + ((rows.first + l) * job.num_features + feature) * numbers;
      for (int64_t k = 0; k < numbers; ++k) target[k] = static_cast<P>(static_cast<T>(output[k * kLanes + l]));
    }
  }
}

template <bool Inverse, typename T, typename P>
DINGO_INLINE void rows_of(const SplineForward<T, P>& job, Rows rows, const Workspace& work) {
  forward_rows<Inverse>(job, rows, work);
}
template <bool Inverse, typename T, typename P>
DINGO_INLINE void rows_of(const SplineBackward<T, P>& job, Rows rows, const Workspace& work) {
  backward_rows<Inverse>(job, rows, work);
}

template <typename Job>
DINGO_INLINE void blocks(const Job& job, int64_t first, int64_t end, const Workspace& work) {
  for (int64_t row = first * kLanes; row < std::min(end * kLanes, job.batch); row += kLanes) {
    const Rows rows{row, static_cast<int>(std::min<int64_t>(kLanes, job.batch - row))};
    if (job.inverse) {
      rows_of<true>(job, rows, work);
    } else {
      rows_of<false>(job, rows, work);
    }
  }
}

template <typename Job>
DINGO_AVX512 void blocks_avx512(const Job& job, int64_t first, int64_t end, const Workspace& work) {
  blocks(job, first, end, work);
}
template <typename Job>
DINGO_AVX2 void blocks_avx2(const Job& job, int64_t first, int64_t end, const Workspace& work) {
  blocks(job, first, end, work);
}
template <typename Job>
void blocks_baseline(const Job& job, int64_t first, int64_t end, const Workspace& work) {
  blocks(job, first, end, work);
}

template <typename Job>
void run_in_parallel(const Job& job, int level) {
  auto* run_blocks = level == 2   ? blocks_avx512<Job>
                     : level == 1 ? blocks_avx2<Job>
                                  : blocks_baseline<Job>;
  // Some ten microseconds of work, so that starting a thread for it pays.
  const int64_t grain = std::max<int64_t>(1, 32 / std::max<int64_t>(1, job.num_features));
  at::parallel_for(0, (job.batch + kLanes - 1) / kLanes, grain, [&](int64_t first, int64_t end) {
    const Workspace work(job.shape);
    run_blocks(job, first, end, work);
  });
}

}  // namespace

template <typename T, typename P>
void run(const SplineForward<T, P>& job, int level) {
  run_in_parallel(job, level);
}
template <typename T, typename P>
void run(const SplineBackward<T, P>& job, int level) {
  run_in_parallel(job, level);
}

template void run(const SplineForward<float, float>& job, int level);
template void run(const SplineForward<float, c10::BFloat16>& job, int level);
template void run(const SplineForward<double, double>& job, int level);
template void run(const SplineBackward<float, float>& job, int level);
template void run(const SplineBackward<float, c10::BFloat16>& job, int level);
template void run(const SplineBackward<double, double>& job, int level);

}  // namespace dingo
