//! Integrals, roots and special functions that priors and distances need.

mod special;

pub(super) use special::{beta_cdf, gamma_cdf, ln_gamma, normal_cdf, normal_quantile, student_t_cdf};

/// Nodes in a panel of [`integrate`].
const ORDER: usize = 16;

/// Gauss-Legendre quadrature, exact for polynomials of degree 31.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Quadrature {
    /// Node and weight on [-1, 1].
    nodes: [(f64, f64); ORDER],
}

impl Quadrature {
    pub(super) fn new() -> Quadrature {
        let mut nodes = [(0.0, 0.0); ORDER];
        for (i, node) in nodes.iter_mut().enumerate() {
            // A good guess at the i-th root of the Legendre polynomial, improved by Newton's method.
            let mut x = (std::f64::consts::PI * (i as f64 + 0.75) / (ORDER as f64 + 0.5)).cos();
            for _ in 0..10 {
                let (value, slope) = legendre(x);
                x -= value / slope;
            }
            let (_, slope) = legendre(x);
            *node = (x, 2.0 / ((1.0 - x * x) * slope * slope));
        }
        Quadrature { nodes }
    }

    /// The integral of a smooth function from `a` to `b`, in panels of equal width.
    pub(super) fn integrate(&self, a: f64, b: f64, panels: usize, function: impl Fn(f64) -> f64) -> f64 {
        let half_width = 0.5 * (b - a) / panels as f64;
        let panel = |index: usize| {
            let center = a + half_width * (2 * index + 1) as f64;
            self.nodes
                .iter()
                .map(|(x, weight)| weight * function(center + half_width * x))
                .sum::<f64>()
        };
        half_width * (0..panels).map(panel).sum::<f64>()
    }
}

/// Legendre polynomial of degree [`ORDER`] and its derivative.
fn legendre(x: f64) -> (f64, f64) {
    let (mut previous, mut current) = (1.0, x);
    for degree in 2..=ORDER {
        let n = degree as f64;
        (previous, current) = (current, ((2.0 * n - 1.0) * x * current - (n - 1.0) * previous) / n);
    }
    (current, ORDER as f64 * (x * current - previous) / (x * x - 1.0))
}

/// Where an increasing function takes the value `target`, between `low` and `high`: Newton's method, kept inside the
/// bracket by bisection. `function` gives value and slope. A target outside of the function's range gives a bound.
pub(super) fn solve_increasing(target: f64, low: f64, high: f64, function: impl Fn(f64) -> (f64, f64)) -> f64 {
    let (mut low, mut high) = (low, high);
    let mut x = 0.5 * (low + high);
    // Bisection alone needs some 60 steps for double precision, a few more where the root is close to zero.
    for _ in 0..200 {
        let (value, slope) = function(x);
        if value < target {
            low = x;
        } else {
            high = x;
        }
        let newton = x - (value - target) / slope;
        let next = if newton > low && newton < high {
            newton
        } else {
            0.5 * (low + high)
        };
        if (next - x).abs() <= f64::EPSILON * next.abs() || low >= high {
            return next;
        }
        x = next;
    }
    x
}

/// `count` evenly spaced values from `first` to `last`, both included.
pub(super) fn linspace(first: f64, last: f64, count: usize) -> Vec<f64> {
    let step = (last - first) / (count - 1) as f64;
    let mut values: Vec<f64> = (0..count).map(|i| first + i as f64 * step).collect();
    values[count - 1] = last;
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quadrature_is_exact_for_polynomials_and_close_for_smooth_functions() {
        let quadrature = Quadrature::new();
        assert!((quadrature.integrate(0.0, 2.0, 1, |x| x.powi(9)) - 102.4).abs() < 1e-12);
        assert!((quadrature.integrate(0.0, 1.0, 3, f64::exp) - (1f64.exp() - 1.0)).abs() < 1e-15);
    }

    #[test]
    fn roots_are_found_within_the_bracket() {
        let cube = |x: f64| (x.powi(3), 3.0 * x * x);
        assert!((solve_increasing(8.0, 0.0, 100.0, cube) - 2.0).abs() < 1e-15);
        assert!((solve_increasing(1e-30, 0.0, 1.0, cube) - 1e-10).abs() < 1e-20);
        assert!((solve_increasing(9.0, 0.0, 2.0, cube) - 2.0).abs() < 1e-15);
    }
}
