//! Monotonic rational-quadratic splines (Gregory and Delbourgo 1982; Durkan et al. 2019, arXiv:1906.04032, section 3 and
//! appendix A.1), with linear tails.

use super::{single_precision, NnError};
use crate::torch_ext::{has_spline_kernel, rational_quadratic_splines, Direction, SplineShape};
use tch::{Kind, Tensor};

/// Smallest width, height (as shares of the interval) and slope that nflows lets a spline have; they keep it invertible in
/// finite precision.
const MIN_BIN_WIDTH: f64 = 1e-3;
const MIN_BIN_HEIGHT: f64 = 1e-3;
const MIN_DERIVATIVE: f64 = 1e-3;

/// The kind of spline: `num_bins` bins on [-tail_bound, tail_bound], the identity outside.
#[derive(Debug, Clone, Copy)]
pub struct RationalQuadraticSpline {
    num_bins: usize,
    tail_bound: f64,
}

/// Unconstrained numbers that a spline is made from, each `[batch, features, n]`.
pub struct SplineParameters {
    /// n = num_bins; a softmax makes them widths.
    pub widths: Tensor,
    /// n = num_bins; a softmax makes them heights.
    pub heights: Tensor,
    /// n = num_bins - 1; a softplus makes them slopes at the inner knots.
    pub derivatives: Tensor,
}

/// The piece of the spline that an input falls into, each `[batch, features]`: lower left corner, size, mean slope, and the
/// slopes at both ends.
struct Bin {
    x: Tensor,
    y: Tensor,
    width: Tensor,
    height: Tensor,
    slope: Tensor,
    left_derivative: Tensor,
    right_derivative: Tensor,
}

#[derive(Clone, Copy)]
enum Axis {
    X,
    Y,
}

impl RationalQuadraticSpline {
    /// Errors for no bin, for so many that the smallest widths would not fit, and for an interval without length.
    pub fn new(num_bins: usize, tail_bound: f64) -> Result<Self, NnError> {
        let most = (1.0 / MIN_BIN_WIDTH.max(MIN_BIN_HEIGHT)) as usize;
        if num_bins == 0 || num_bins > most {
            let message = format!("{num_bins}; allowed are 1 to {most}");
            return Err(NnError::settings(
                "model.posterior_kwargs.base_transform_kwargs.num_bins",
                message,
            ));
        }
        if !(tail_bound > 0.0 && tail_bound.is_finite()) {
            let message = format!("{tail_bound}; must be positive");
            return Err(NnError::settings(
                "model.posterior_kwargs.base_transform_kwargs.tail_bound",
                message,
            ));
        }
        Ok(RationalQuadraticSpline { num_bins, tail_bound })
    }

    pub fn num_bins(&self) -> usize {
        self.num_bins
    }

    /// Unconstrained numbers per spline: widths, heights, and slopes at the inner knots.
    pub fn num_parameters(&self) -> usize {
        3 * self.num_bins - 1
    }

    /// Sends the features at `features`, `[n]`, of `inputs`, `[batch, width]`, through splines, and passes on the others.
    /// Gives `[batch, width]`, and the sum of the splines' log slopes, `[batch]`.
    ///
    /// `parameters`, `[batch, n * num_parameters]`, are for each feature its widths, heights and derivatives; widths and
    /// heights are multiplied by `scale` first. They may be in half precision.
    ///
    /// # Errors
    /// Features that are not there; they may come from a file.
    pub fn transform(
        &self,
        direction: Direction,
        inputs: &Tensor,
        features: &Tensor,
        parameters: &Tensor,
        scale: f64,
    ) -> Result<(Tensor, Tensor), NnError> {
        if !has_spline_kernel(inputs) {
            return self.transform_by_operations(direction, inputs, features, parameters, scale);
        }
        let shape = SplineShape {
            bins: self.num_bins as i64,
            tail_bound: self.tail_bound,
            min_width: MIN_BIN_WIDTH,
            min_height: MIN_BIN_HEIGHT,
            min_derivative: MIN_DERIVATIVE,
            scale,
        };
        Ok(rational_quadratic_splines(
            inputs, features, parameters, &shape, direction,
        )?)
    }

    /// The same as [`transform`](Self::transform) made of libtorch's operations: for devices without a kernel, and what the
    /// kernel is tested against.
    pub(super) fn transform_by_operations(
        &self,
        direction: Direction,
        inputs: &Tensor,
        features: &Tensor,
        parameters: &Tensor,
        scale: f64,
    ) -> Result<(Tensor, Tensor), NnError> {
        let _single = single_precision(inputs)?;
        let transformed = inputs.f_index_select(1, features)?;
        let (per_feature, bins) = (self.num_parameters() as i64, self.num_bins as i64);
        let parameters = parameters.f_to_kind(inputs.kind())?;
        let parameters = parameters.f_reshape([inputs.size()[0], features.size()[0], per_feature])?;
        let parameters = SplineParameters {
            widths: parameters.narrow(-1, 0, bins) * scale,
            heights: parameters.narrow(-1, bins, bins) * scale,
            derivatives: parameters.narrow(-1, 2 * bins, bins - 1),
        };
        let (transformed, log_slopes) = match direction {
            Direction::Forward => self.forward(&transformed, &parameters),
            Direction::Inverse => self.inverse(&transformed, &parameters),
        };
        let outputs = inputs.f_index_copy(1, features, &transformed)?;
        Ok((outputs, log_slopes.sum_dim_intlist(1, false, None::<Kind>)))
    }

    /// The spline of each input, `[batch, features]`: its value and the log of its slope, of the same shape.
    pub fn forward(&self, inputs: &Tensor, parameters: &SplineParameters) -> (Tensor, Tensor) {
        self.inside_or_identity(inputs, |x| {
            let bin = self.find_bin(x, Axis::X, parameters);
            let theta = (x - &bin.x) / &bin.width;
            let mixed = &theta * (1.0 - &theta);
            let numerator = &bin.height * (&bin.slope * theta.square() + &bin.left_derivative * &mixed);
            let outputs = &bin.y + numerator / bin.denominator(&mixed);
            (outputs, bin.log_derivative(&theta, &mixed))
        })
    }

    /// The inverse of the spline and the log of the inverse's slope.
    pub fn inverse(&self, inputs: &Tensor, parameters: &SplineParameters) -> (Tensor, Tensor) {
        self.inside_or_identity(inputs, |y| {
            let bin = self.find_bin(y, Axis::Y, parameters);
            let rise = y - &bin.y;
            let excess = &rise * bin.curvature();
            let a = &excess + &bin.height * (&bin.slope - &bin.left_derivative);
            let b = &bin.height * &bin.left_derivative - excess;
            let c = -&bin.slope * rise;
            // Not negative but for rounding. The root is written so that nothing cancels (appendix A.1).
            let discriminant = (b.square() - a * &c * 4.0).clamp_min(0.0);
            let theta = c * 2.0 / (-b - discriminant.sqrt());
            let outputs = &theta * &bin.width + &bin.x;
            let mixed = &theta * (1.0 - &theta);
            (outputs, -bin.log_derivative(&theta, &mixed))
        })
    }

    /// Applies `spline` inside the interval, the identity (log slope 0) outside, on tensors of fixed shape: an outside
    /// input is replaced by 0 before, so that values and gradients stay finite on the branch that is not taken.
    fn inside_or_identity(&self, inputs: &Tensor, spline: impl Fn(&Tensor) -> (Tensor, Tensor)) -> (Tensor, Tensor) {
        // A NaN is not inside: it passes unchanged and shows up in the loss.
        let outside = inputs.abs().le(self.tail_bound).logical_not();
        let (outputs, logabsdet) = spline(&inputs.masked_fill(&outside, 0.0));
        (
            inputs.where_self(&outside, &outputs),
            logabsdet.masked_fill(&outside, 0.0),
        )
    }

    /// Positions of the num_bins + 1 knots along one axis, `[batch, features, num_bins + 1]`.
    pub(super) fn knots(&self, unnormalized: &Tensor, min_size: f64) -> Tensor {
        let (bins, bound) = (self.num_bins as i64, self.tail_bound);
        let sizes = unnormalized.softmax(-1, None::<Kind>) * (1.0 - min_size * bins as f64) + min_size;
        let inner = sizes.cumsum(-1, None::<Kind>).narrow(-1, 0, bins - 1) * (2.0 * bound) - bound;
        inner.pad([1, 0], "constant", -bound).pad([0, 1], "constant", bound)
    }

    /// The bin that holds `value`, `[batch, features]`, which lies inside the interval, along `axis`.
    fn find_bin(&self, value: &Tensor, axis: Axis, parameters: &SplineParameters) -> Bin {
        let xs = self.knots(&parameters.widths, MIN_BIN_WIDTH);
        let ys = self.knots(&parameters.heights, MIN_BIN_HEIGHT);
        // The tails have slope 1, and so have the ends.
        let derivatives = (parameters.derivatives.softplus() + MIN_DERIVATIVE).pad([1, 1], "constant", 1.0);

        // Counting inner knots alone keeps the index in range whatever the numbers are.
        let searched = match axis {
            Axis::X => &xs,
            Axis::Y => &ys,
        };
        let inner = searched.narrow(-1, 1, self.num_bins as i64 - 1);
        let index = value
            .unsqueeze(-1)
            .ge_tensor(&inner)
            .sum_dim_intlist(-1, false, Kind::Int64);

        // One gather for all: [batch, features, (x, y, derivative), (left, right)].
        let both_ends = Tensor::stack(&[&index, &(&index + 1)], -1).unsqueeze(-2);
        let mut size = both_ends.size();
        size[2] = 3;
        let ends = Tensor::stack(&[xs, ys, derivatives], -2).gather(-1, &both_ends.expand(&size, false), false);
        let end = |quantity: i64, side: i64| ends.select(-2, quantity).select(-1, side);
        let (x, y) = (end(0, 0), end(1, 0));
        let (width, height) = (end(0, 1) - &x, end(1, 1) - &y);
        let slope = &height / &width;
        Bin {
            x,
            y,
            width,
            height,
            slope,
            left_derivative: end(2, 0),
            right_derivative: end(2, 1),
        }
    }
}

impl Bin {
    /// d₀ + d₁ - 2s: zero for a straight piece.
    fn curvature(&self) -> Tensor {
        &self.left_derivative + &self.right_derivative - &self.slope * 2.0
    }

    /// Of the rational quadratic; `mixed` is θ(1 - θ).
    fn denominator(&self, mixed: &Tensor) -> Tensor {
        &self.slope + self.curvature() * mixed
    }

    /// Log of the slope at θ, the position in the bin from 0 to 1.
    fn log_derivative(&self, theta: &Tensor, mixed: &Tensor) -> Tensor {
        let remainder: Tensor = 1.0 - theta;
        let weighted = &self.right_derivative * theta.square()
            + &self.slope * mixed * 2.0
            + &self.left_derivative * remainder.square();
        (self.slope.square() * weighted).log() - self.denominator(mixed).log() * 2.0
    }
}
