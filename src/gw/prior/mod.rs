//! bilby prior expressions: parsed, sampled by inverse CDF, with the moments Dingo standardizes by.

mod aligned_spin;
mod arguments;
mod classes;
mod cosmological;
mod distribution;
mod expression;
mod tabulated;

#[cfg(test)]
mod tests;

use distribution::Distribution;
use std::f64::consts::PI;

/// Dingo's default extrinsic priors, in its order: parameter and expression. A parameter that the settings leave out
/// has its default as well.
pub const DEFAULT_EXTRINSIC_PRIORS: [(&str, &str); 5] = [
    (
        "dec",
        "bilby.core.prior.Cosine(minimum=-np.pi/2, maximum=np.pi/2, name='dec')",
    ),
    (
        "ra",
        "bilby.core.prior.Uniform(minimum=0., maximum=2*np.pi, boundary='periodic', name='ra')",
    ),
    (
        "geocent_time",
        "bilby.core.prior.Uniform(minimum=-0.1, maximum=0.1, name='geocent_time')",
    ),
    (
        "psi",
        "bilby.core.prior.Uniform(minimum=0.0, maximum=np.pi, boundary='periodic', name='psi')",
    ),
    (
        "luminosity_distance",
        "bilby.core.prior.Uniform(minimum=100.0, maximum=6000.0, name='luminosity_distance')",
    ),
];

/// A one-dimensional prior.
#[derive(Debug, Clone, PartialEq)]
pub struct Prior {
    distribution: Distribution,
}

/// Mean and standard deviation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Moments {
    pub mean: f64,
    pub std: f64,
}

/// Why an expression is not a prior: names the parameter, the expression, and what is allowed.
#[derive(Debug, thiserror::Error, PartialEq)]
#[error("{0}")]
pub struct PriorError(pub String);

impl Prior {
    /// Parses a bilby expression such as `bilby.core.prior.Uniform(minimum=-0.1, maximum=0.1, name='geocent_time')`,
    /// a number (a delta function), or `default` (Dingo's default extrinsic prior of that parameter name).
    ///
    /// Classes may be written with or without bilby's module, arguments by position or keyword in bilby's order.
    /// An error for syntax, a class that is not known (conditional and joint priors are not), an argument that the
    /// class does not have or lacks, and values with which the prior would have no meaning.
    pub fn parse(parameter: &str, expression: &str) -> Result<Prior, PriorError> {
        let expression = expression.trim();
        let fail = |problem: String| PriorError(format!("prior of {parameter}, '{expression}': {problem}"));
        let expression = match expression.eq_ignore_ascii_case("default") {
            true => default_extrinsic(parameter).map_err(fail)?,
            false => expression,
        };
        let value = expression::parse(expression).map_err(fail)?;
        Ok(Prior {
            distribution: classes::build(&value, parameter).map_err(fail)?,
        })
    }

    /// Inverse CDF at `u` in [0, 1]. At 0 and 1 it is infinite where the prior has no bounds; draws should lie between.
    /// NaN for a constraint (see [`Prior::is_constraint`]).
    pub fn rescale(&self, u: f64) -> f64 {
        self.distribution.rescale(u)
    }

    /// Lower and upper bound of the support (infinite where unbounded).
    pub fn bounds(&self) -> (f64, f64) {
        self.distribution.bounds()
    }

    /// Whether this only bounds a parameter that follows from others (bilby's `Constraint`), and so cannot be sampled.
    pub fn is_constraint(&self) -> bool {
        matches!(self.distribution, Distribution::Constraint { .. })
    }

    /// The analytic moments that Dingo uses for standardization, where it has them; `None` asks for numerical ones.
    ///
    /// Dingo has them for `Uniform`, and for `Sine` and `Cosine` over exactly [0, pi] and [-pi/2, pi/2]; its numerical
    /// ones are mean and standard deviation (ddof = 0) of 50,000 draws. A delta function has its exact moments here.
    pub fn analytic_moments(&self) -> Option<Moments> {
        let std_of_sine = (0.25 * PI * PI - 2.0).sqrt();
        match self.distribution {
            Distribution::Uniform { minimum, maximum } => Some(Moments {
                mean: (maximum + minimum) / 2.0,
                std: ((maximum - minimum) * (maximum - minimum) / 12.0).sqrt(),
            }),
            Distribution::Sine {
                minimum: 0.0,
                maximum: PI,
            } => Some(Moments {
                mean: PI / 2.0,
                std: std_of_sine,
            }),
            Distribution::Cosine { minimum, maximum } if minimum == -PI / 2.0 && maximum == PI / 2.0 => Some(Moments {
                mean: 0.0,
                std: std_of_sine,
            }),
            Distribution::Delta { peak } => Some(Moments { mean: peak, std: 0.0 }),
            _ => None,
        }
    }
}

fn default_extrinsic(parameter: &str) -> Result<&'static str, String> {
    let known = DEFAULT_EXTRINSIC_PRIORS.iter().find(|(name, _)| *name == parameter);
    known.map(|(_, expression)| *expression).ok_or_else(|| {
        let names = DEFAULT_EXTRINSIC_PRIORS.map(|(name, _)| name).join(", ");
        format!("there is no default extrinsic prior of this name, only of {names}")
    })
}
