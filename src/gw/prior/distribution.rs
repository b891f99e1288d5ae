//! Distributions and their inverse CDFs.

use super::tabulated::Tabulated;
use crate::gw::numerics::{
    beta_cdf, gamma_cdf, ln_gamma, normal_cdf, normal_quantile, solve_increasing, student_t_cdf,
};
use std::f64::consts::PI;
use std::sync::Arc;

/// A distribution whose parameters make sense (`classes` sees to that).
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Distribution {
    Delta {
        peak: f64,
    },
    Constraint {
        minimum: f64,
        maximum: f64,
    },
    Uniform {
        minimum: f64,
        maximum: f64,
    },
    Sine {
        minimum: f64,
        maximum: f64,
    },
    Cosine {
        minimum: f64,
        maximum: f64,
    },
    PowerLaw {
        alpha: f64,
        minimum: f64,
        maximum: f64,
    },
    SymmetricLogUniform {
        minimum: f64,
        maximum: f64,
    },
    Gaussian {
        mu: f64,
        sigma: f64,
    },
    TruncatedGaussian {
        mu: f64,
        sigma: f64,
        minimum: f64,
        maximum: f64,
    },
    LogNormal {
        mu: f64,
        sigma: f64,
    },
    Exponential {
        mu: f64,
    },
    StudentT {
        degrees_of_freedom: f64,
        mu: f64,
        scale: f64,
    },
    Beta {
        alpha: f64,
        beta: f64,
        minimum: f64,
        maximum: f64,
    },
    Gamma {
        shape: f64,
        scale: f64,
    },
    Logistic {
        mu: f64,
        scale: f64,
    },
    Cauchy {
        location: f64,
        scale: f64,
    },
    Triangular {
        mode: f64,
        minimum: f64,
        maximum: f64,
    },
    MassRatio(MassRatio),
    Tabulated(Arc<Tabulated>),
}

impl Distribution {
    /// Inverse CDF at `u` in [0, 1]; NaN for a constraint.
    pub(super) fn rescale(&self, u: f64) -> f64 {
        match *self {
            Distribution::Delta { peak } => peak,
            Distribution::Constraint { .. } => f64::NAN,
            Distribution::Uniform { minimum, maximum } => minimum + u * (maximum - minimum),
            Distribution::Sine { minimum, maximum } => between(minimum.cos(), maximum.cos(), u).acos(),
            Distribution::Cosine { minimum, maximum } => between(minimum.sin(), maximum.sin(), u).asin(),
            Distribution::PowerLaw {
                alpha,
                minimum,
                maximum,
            } => power_law(alpha, minimum, maximum, u),
            Distribution::SymmetricLogUniform { minimum, maximum } => {
                let log_range = (maximum / minimum).ln();
                match u < 0.5 {
                    true => -maximum * (-2.0 * u * log_range).exp(),
                    false => minimum * ((2.0 * u - 1.0) * log_range).exp(),
                }
            }
            Distribution::Gaussian { mu, sigma } => mu + sigma * normal_quantile(u),
            Distribution::TruncatedGaussian {
                mu,
                sigma,
                minimum,
                maximum,
            } => {
                let scaled = truncated_normal_quantile((minimum - mu) / sigma, (maximum - mu) / sigma, u);
                (mu + sigma * scaled).clamp(minimum, maximum)
            }
            Distribution::LogNormal { mu, sigma } => (mu + sigma * normal_quantile(u)).exp(),
            Distribution::Exponential { mu } => -mu * (-u).ln_1p(),
            Distribution::StudentT {
                degrees_of_freedom,
                mu,
                scale,
            } => mu + scale * student_t_quantile(degrees_of_freedom, u),
            Distribution::Beta {
                alpha,
                beta,
                minimum,
                maximum,
            } => minimum + (maximum - minimum) * beta_quantile(alpha, beta, u),
            Distribution::Gamma { shape, scale } => scale * gamma_quantile(shape, u),
            Distribution::Logistic { mu, scale } => mu + scale * (u.ln() - (-u).ln_1p()),
            Distribution::Cauchy { location, scale } => match u {
                0.0 => f64::NEG_INFINITY,
                1.0 => f64::INFINITY,
                _ => location + scale * (PI * (u - 0.5)).tan(),
            },
            Distribution::Triangular { mode, minimum, maximum } => {
                let width = maximum - minimum;
                match u < (mode - minimum) / width {
                    true => minimum + (u * width * (mode - minimum)).sqrt(),
                    false => maximum - ((1.0 - u) * width * (maximum - mode)).sqrt(),
                }
            }
            Distribution::MassRatio(ref mass_ratio) => mass_ratio.rescale(u),
            Distribution::Tabulated(ref tabulated) => tabulated.rescale(u),
        }
    }

    /// Lower and upper end of the support.
    pub(super) fn bounds(&self) -> (f64, f64) {
        match *self {
            Distribution::Delta { peak } => (peak, peak),
            Distribution::Constraint { minimum, maximum }
            | Distribution::Uniform { minimum, maximum }
            | Distribution::Sine { minimum, maximum }
            | Distribution::Cosine { minimum, maximum }
            | Distribution::PowerLaw { minimum, maximum, .. }
            | Distribution::TruncatedGaussian { minimum, maximum, .. }
            | Distribution::Beta { minimum, maximum, .. }
            | Distribution::Triangular { minimum, maximum, .. } => (minimum, maximum),
            Distribution::SymmetricLogUniform { maximum, .. } => (-maximum, maximum),
            Distribution::Gaussian { .. }
            | Distribution::StudentT { .. }
            | Distribution::Logistic { .. }
            | Distribution::Cauchy { .. } => (f64::NEG_INFINITY, f64::INFINITY),
            Distribution::LogNormal { .. } | Distribution::Exponential { .. } | Distribution::Gamma { .. } => {
                (0.0, f64::INFINITY)
            }
            Distribution::MassRatio(ref mass_ratio) => (mass_ratio.minimum, mass_ratio.maximum),
            Distribution::Tabulated(ref tabulated) => tabulated.bounds(),
        }
    }
}

fn between(first: f64, last: f64, u: f64) -> f64 {
    first + u * (last - first)
}

fn power_law(alpha: f64, minimum: f64, maximum: f64, u: f64) -> f64 {
    if alpha == -1.0 {
        return minimum * (u * (maximum / minimum).ln()).exp();
    }
    let exponent = 1.0 + alpha;
    between(minimum.powf(exponent), maximum.powf(exponent), u).powf(1.0 / exponent)
}

/// Inverse CDF of the standard normal distribution cut to `low` and `high`. Where both lie above the mean, the mirror
/// image is used: there the CDF does not round to 1.
fn truncated_normal_quantile(low: f64, high: f64, u: f64) -> f64 {
    if low > 0.0 {
        return -truncated_normal_quantile(-high, -low, 1.0 - u);
    }
    normal_quantile(between(normal_cdf(low), normal_cdf(high), u))
}

fn student_t_quantile(degrees_of_freedom: f64, u: f64) -> f64 {
    // By symmetry; the lower half keeps its precision far into the tail.
    if u > 0.5 {
        return -student_t_quantile(degrees_of_freedom, 1.0 - u);
    }
    if u <= 0.0 {
        return f64::NEG_INFINITY;
    }
    let nu = degrees_of_freedom;
    let ln_norm = ln_gamma(0.5 * (nu + 1.0)) - ln_gamma(0.5 * nu) - 0.5 * (nu * PI).ln();
    let cdf_and_density = |t: f64| {
        (
            student_t_cdf(nu, t),
            (ln_norm - 0.5 * (nu + 1.0) * (t * t / nu).ln_1p()).exp(),
        )
    };
    let mut low = -1.0;
    while student_t_cdf(nu, low) > u {
        low *= 2.0;
    }
    solve_increasing(u, low, 0.0, cdf_and_density)
}

fn beta_quantile(alpha: f64, beta: f64, u: f64) -> f64 {
    let ln_beta = ln_gamma(alpha) + ln_gamma(beta) - ln_gamma(alpha + beta);
    let density = |x: f64| ((alpha - 1.0) * x.ln() + (beta - 1.0) * (-x).ln_1p() - ln_beta).exp();
    match u {
        0.0 | 1.0 => u,
        _ => solve_increasing(u, 0.0, 1.0, |x| (beta_cdf(alpha, beta, x), density(x))),
    }
}

fn gamma_quantile(shape: f64, u: f64) -> f64 {
    match u {
        0.0 => return 0.0,
        1.0 => return f64::INFINITY,
        _ => {}
    }
    let density = |x: f64| ((shape - 1.0) * x.ln() - x - ln_gamma(shape)).exp();
    let mut high = shape + 1.0;
    while gamma_cdf(shape, high) < u {
        high *= 2.0;
    }
    solve_increasing(u, 0.0, high, |x| (gamma_cdf(shape, x), density(x)))
}

/// Mass ratio q = m2/m1 of components with uniformly distributed masses at given chirp mass: the density is
/// `(1 + q)^(2/5) q^(-6/5)` (Romero-Shaw et al. 2020, arXiv:2006.00714).
#[derive(Debug, Clone, PartialEq)]
pub(super) struct MassRatio {
    minimum: f64,
    maximum: f64,
    /// bilby's `equal_mass`: u and 1 - u give the same q, and 1/2 the largest.
    equal_mass: bool,
}

impl MassRatio {
    pub(super) fn new(minimum: f64, maximum: f64, equal_mass: bool) -> MassRatio {
        MassRatio {
            minimum,
            maximum,
            equal_mass,
        }
    }

    fn rescale(&self, u: f64) -> f64 {
        let u = if self.equal_mass { 2.0 * u.min(1.0 - u) } else { u };
        let target = between(Self::integral(self.minimum), Self::integral(self.maximum), u);
        solve_increasing(target, self.minimum, self.maximum, |q| {
            (Self::integral(q), Self::density(q))
        })
    }

    fn density(q: f64) -> f64 {
        (1.0 + q).powf(0.4) * q.powf(-1.2)
    }

    /// An integral of the density, `-5 q^(-1/5) 2F1(-2/5, -1/5; 4/5; -q)`. Pfaff's transformation turns the
    /// hypergeometric function into `(1 + q)^(2/5) 2F1(-2/5, 1; 4/5; q / (1 + q))`, whose series converges.
    fn integral(q: f64) -> f64 {
        let x = q / (1.0 + q);
        let (mut term, mut sum) = (1.0, 1.0);
        let mut n = 0.0;
        while f64::abs(term) > f64::EPSILON * 0.1 * f64::abs(sum) {
            term *= (n - 0.4) / (n + 0.8) * x;
            sum += term;
            n += 1.0;
        }
        -5.0 * q.powf(-0.2) * (1.0 + q).powf(0.4) * sum
    }
}
