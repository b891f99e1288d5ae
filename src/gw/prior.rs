//! bilby prior expressions: parsed, sampled by inverse CDF, with the moments Dingo standardizes by.

/// A one-dimensional prior.
#[derive(Debug, Clone)]
pub struct Prior {}

/// Mean and standard deviation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Moments {
    pub mean: f64,
    pub std: f64,
}

#[derive(Debug, thiserror::Error, PartialEq)]
#[error("{0}")]
pub struct PriorError(pub String);

impl Prior {
    /// Parses a bilby expression such as `bilby.core.prior.Uniform(minimum=-0.1, maximum=0.1, name='geocent_time')`,
    /// a number (a delta function), or `default` (Dingo's default extrinsic prior of that parameter name).
    pub fn parse(_parameter: &str, _expression: &str) -> Result<Prior, PriorError> {
        todo!()
    }

    /// Inverse CDF at `u` in [0, 1].
    pub fn rescale(&self, _u: f64) -> f64 {
        todo!()
    }

    /// Lower and upper bound of the support (infinite where unbounded).
    pub fn bounds(&self) -> (f64, f64) {
        todo!()
    }

    /// The analytic moments that Dingo uses for standardization, where it has them; `None` asks for numerical ones.
    pub fn analytic_moments(&self) -> Option<Moments> {
        todo!()
    }
}
