// Monotonic rational-quadratic splines (Durkan et al. 2019, arXiv:1906.04032, section 3 and appendix A.1) from unconstrained
// numbers: values, log slopes and gradients.
//
// All arithmetic is in double precision, whatever the type of the numbers outside: bins as narrow as a thousandth of the
// interval would make errors of 1e-4 out of single precision's rounding of the knots. It comes in two kinds: functions of
// one spline's numbers, and functions of N splines side by side ("lanes"; number k of lane l at [k * N + l]), which a host
// compiler vectorizes over lanes. A GPU thread takes N = 1.
#pragma once

#include <cmath>
#include <cstdint>

#include "portable.h"
#include "spline_math.h"

namespace dingo {

struct SplineShape {
  int64_t bins;
  double tail_bound;             // bins cover [-tail_bound, tail_bound]; outside, a spline is the identity
  double min_width, min_height;  // as shares of the interval
  double min_derivative;
  double scale;  // multiplies unconstrained widths and heights

  DINGO_INLINE int64_t parameters() const { return 3 * bins - 1; }
};

// The piece of a spline between two knots: lower left corner, size, and the slopes at both ends.
struct SplinePiece {
  double x, y, width, height, left_derivative, right_derivative;
};

// A piece at theta, the position in the bin from 0 to 1. The value is y + height * numerator / denominator, the slope
// mean_slope^2 * weighted / denominator^2.
struct SplinePoint {
  double theta, mixed, mean_slope, curvature, numerator, denominator, weighted;
};

DINGO_INLINE SplinePoint spline_point(const SplinePiece& piece, double theta) {
  const double rest = 1.0 - theta;
  const double mixed = theta * rest;
  const double s = piece.height / piece.width;
  const double curvature = piece.left_derivative + piece.right_derivative - 2.0 * s;
  return {theta,
          mixed,
          s,
          curvature,
          s * theta * theta + piece.left_derivative * mixed,
          s + curvature * mixed,
          piece.right_derivative * theta * theta + 2.0 * s * mixed + piece.left_derivative * rest * rest};
}

DINGO_INLINE double spline_value(const SplinePiece& piece, const SplinePoint& p) {
  return piece.y + piece.height * p.numerator / p.denominator;
}

DINGO_INLINE double spline_slope(const SplinePoint& p) {
  const double ratio = p.mean_slope / p.denominator;
  return ratio * ratio * p.weighted;
}

// Where in the bin the piece has the value y.
DINGO_INLINE double spline_inverse_theta(const SplinePiece& piece, double y) {
  const double s = piece.height / piece.width;
  const double rise = y - piece.y;
  const double excess = rise * (piece.left_derivative + piece.right_derivative - 2.0 * s);
  const double a = excess + piece.height * (s - piece.left_derivative);
  const double b = piece.height * piece.left_derivative - excess;
  const double c = -s * rise;
  // Not negative but for rounding. The root is written so that nothing cancels (appendix A.1).
  const double discriminant = b * b - 4.0 * a * c;
  return 2.0 * c / (-b - sqrt(discriminant < 0.0 ? 0.0 : discriminant));
}

// Derivative of the log slope along x.
DINGO_INLINE double spline_log_slope_derivative(const SplinePiece& piece, const SplinePoint& p) {
  const double rest = 1.0 - p.theta;
  const double weighted = piece.right_derivative * p.theta - piece.left_derivative * rest +
                          p.mean_slope * (rest - p.theta);
  return 2.0 * (weighted / p.weighted - p.curvature * (rest - p.theta) / p.denominator) / piece.width;
}

// Gradient of g_value * value + g_log_slope * log slope, at fixed x, with respect to the numbers of the piece. That with
// respect to x itself is minus the one of the corner, `x`.
DINGO_INLINE SplinePiece spline_gradient(const SplinePiece& piece, const SplinePoint& p, double g_value,
                                         double g_log_slope) {
  const double inverse_denominator = 1.0 / p.denominator;
  const double inverse_weighted = 1.0 / p.weighted;
  const double rest = 1.0 - p.theta;
  const double ratio = p.numerator * inverse_denominator;
  const double h = g_value * piece.height * inverse_denominator;
  // With respect to x through theta: by the slope of the value and that of its logarithm.
  const double x = g_value * spline_slope(p) + g_log_slope * spline_log_slope_derivative(piece, p);
  const double mean_slope =
      h * (p.theta * p.theta - ratio * (1.0 - 2.0 * p.mixed)) +
      2.0 * g_log_slope *
          (1.0 / p.mean_slope + p.mixed * inverse_weighted - (1.0 - 2.0 * p.mixed) * inverse_denominator);
  const double both = -2.0 * g_log_slope * p.mixed * inverse_denominator;
  SplinePiece gradient;
  gradient.x = -x;
  gradient.y = g_value;
  gradient.width = -(x * p.theta + mean_slope * p.mean_slope / piece.width);
  gradient.height = g_value * ratio + mean_slope / piece.width;
  gradient.left_derivative = h * p.mixed * (1.0 - ratio) + both + g_log_slope * rest * rest * inverse_weighted;
  gradient.right_derivative = -h * p.mixed * ratio + both + g_log_slope * p.theta * p.theta * inverse_weighted;
  return gradient;
}

// Softmax of `bins` unconstrained sizes: the shares of the interval, but for the smallest sizes.
template <int N>
DINGO_INLINE void spline_shares(int64_t bins, double scale, const double* unconstrained, double* shares) {
  double largest[N], sum[N];
  for (int l = 0; l < N; ++l) {
    largest[l] = unconstrained[l] * scale;
    sum[l] = 0.0;
  }
  for (int64_t k = 1; k < bins; ++k) {
    const double* row = unconstrained + k * N;
    // A NaN that is not taken here still makes the sum one.
    for (int l = 0; l < N; ++l) largest[l] = select(row[l] * scale > largest[l], row[l] * scale, largest[l]);
  }
  for (int64_t k = 0; k < bins; ++k) {
    const double* row = unconstrained + k * N;
    double* share = shares + k * N;
    DINGO_INDEPENDENT_ITERATIONS
    for (int l = 0; l < N; ++l) {
      share[l] = exp_nonpositive(row[l] * scale - largest[l]);
      sum[l] += share[l];
    }
  }
  for (int l = 0; l < N; ++l) sum[l] = 1.0 / sum[l];
  for (int64_t k = 0; k < bins; ++k) {
    double* share = shares + k * N;
    for (int l = 0; l < N; ++l) share[l] *= sum[l];
  }
}

// The bins that hold the values of N lanes.
template <int N>
struct SplineBins {
  double index[N];
  double width_share[N], height_share[N];    // of these bins
  double width_before[N], height_before[N];  // sums of the shares of the bins before
  double left[N], right[N];                  // unconstrained slopes at the ends that are inner knots

  // Finds them along x, or along y if `Inverse`, for values inside the interval. `derivatives` are unconstrained.
  template <bool Inverse>
  DINGO_INLINE void find(const SplineShape& shape, const double* values, const double* width_shares,
                         const double* height_shares, const double* derivatives) {
    const double min_size = Inverse ? shape.min_height : shape.min_width;
    const double free_length = 2.0 * shape.tail_bound * (1.0 - min_size * shape.bins);
    double width_sum[N], height_sum[N];
    for (int l = 0; l < N; ++l) {
      index[l] = width_before[l] = height_before[l] = width_sum[l] = height_sum[l] = left[l] = 0.0;
      width_share[l] = width_shares[l];
      height_share[l] = height_shares[l];
      right[l] = shape.bins > 1 ? derivatives[l] : 0.0;
    }
    for (int64_t k = 1; k < shape.bins; ++k) {
      const double place = static_cast<double>(k);
      // A value on a knot belongs to the bin on its right, also where rounding puts the knot a little too far.
      const double fixed_part = shape.tail_bound * (2.0 * min_size * place - 1.0 - 1e-13);
      const bool last = k + 1 == shape.bins;
      const double* w = width_shares + k * N;
      const double* h = height_shares + k * N;
      const double* d = derivatives + (k - 1) * N;
      const double* next_d = last ? d : d + N;
      DINGO_INDEPENDENT_ITERATIONS
      for (int l = 0; l < N; ++l) {
        width_sum[l] += w[l - N];
        height_sum[l] += h[l - N];
        const double knot = fixed_part + free_length * (Inverse ? height_sum[l] : width_sum[l]);
        const bool beyond = values[l] >= knot;
        index[l] = select(beyond, place, index[l]);
        width_share[l] = select(beyond, w[l], width_share[l]);
        height_share[l] = select(beyond, h[l], height_share[l]);
        width_before[l] = select(beyond, width_sum[l], width_before[l]);
        height_before[l] = select(beyond, height_sum[l], height_before[l]);
        left[l] = select(beyond, d[l], left[l]);
        right[l] = select(beyond, next_d[l], right[l]);
      }
    }
  }
};

}  // namespace dingo
