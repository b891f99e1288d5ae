//! The extrinsic prior: what a source's place and orientation are drawn from.

use indexmap::IndexMap;

use crate::data::DataError;
use crate::gw::prior::{Moments, Prior};

/// The parameters that the projection onto the detectors needs; their priors have defaults.
pub const PROJECTION_PARAMETERS: [&str; 5] = ["dec", "ra", "geocent_time", "psi", "luminosity_distance"];

/// Priors by parameter name. The order is that of [`PROJECTION_PARAMETERS`], then the settings'.
#[derive(Debug, Clone)]
pub struct ExtrinsicPrior {
    priors: IndexMap<String, Prior>,
}

impl ExtrinsicPrior {
    /// From `data.extrinsic_prior`. A parameter that is missing has Dingo's default; one that Dingo has no default for and
    /// that is given as `default` is left out, as Dingo leaves it out.
    pub fn new(expressions: &IndexMap<String, String>) -> Result<ExtrinsicPrior, DataError> {
        let mut all: IndexMap<&str, &str> = PROJECTION_PARAMETERS
            .map(|name| (name, "default"))
            .into_iter()
            .collect();
        for (name, expression) in expressions {
            if !expression.eq_ignore_ascii_case("default") {
                all.insert(name, expression);
            } else if !all.contains_key(name.as_str()) {
                log::warn!("data.extrinsic_prior.{name}: there is no default extrinsic prior of this name; ignored");
            }
        }
        let parse = |(name, expression): (&str, &str)| {
            let error = |message: String| DataError::Setting {
                key: format!("data.extrinsic_prior.{name}"),
                message,
            };
            let prior = Prior::parse(name, expression).map_err(|problem| error(problem.to_string()))?;
            if prior.is_constraint() {
                return Err(error(format!("{expression} is a constraint and cannot be drawn from")));
            }
            Ok((name.to_string(), prior))
        };
        Ok(ExtrinsicPrior {
            priors: all.into_iter().map(parse).collect::<Result<_, _>>()?,
        })
    }

    /// The same with one parameter fixed.
    pub fn with_fixed(&self, name: &str, value: f64) -> Result<ExtrinsicPrior, DataError> {
        let prior = Prior::parse(name, &value.to_string());
        let prior = prior.map_err(|error| DataError::Compute(format!("fixing {name} at {value}: {error}")))?;
        let mut priors = self.priors.clone();
        priors.insert(name.to_string(), prior);
        Ok(ExtrinsicPrior { priors })
    }

    /// Parameters and priors, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Prior)> {
        self.priors.iter().map(|(name, prior)| (name.as_str(), prior))
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.priors.keys().map(String::as_str)
    }

    /// Mean and standard deviation of a parameter, if it has a prior: Dingo's analytic ones where there are some, else by
    /// the midpoint rule over the inverse CDF, to which Dingo's estimate from 50,000 samples (ddof 0) converges.
    pub fn moments(&self, name: &str) -> Option<Moments> {
        const POINTS: usize = 100_000;
        let prior = self.priors.get(name)?;
        Some(prior.analytic_moments().unwrap_or_else(|| {
            let at = |i: usize| prior.rescale((i as f64 + 0.5) / POINTS as f64);
            let mean = (0..POINTS).map(at).sum::<f64>() / POINTS as f64;
            let variance = (0..POINTS).map(|i| (at(i) - mean).powi(2)).sum::<f64>() / POINTS as f64;
            Moments {
                mean,
                std: variance.sqrt(),
            }
        }))
    }
}
