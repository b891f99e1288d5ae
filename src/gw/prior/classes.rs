//! bilby's prior classes: their arguments, and the distribution that each call stands for.

use super::arguments::Arguments;
use super::distribution::{Distribution, MassRatio};
use super::expression::{Call, Value};
use super::tabulated::Tabulated;
use super::{aligned_spin, cosmological};
use crate::gw::numerics::normal_cdf;
use std::f64::consts::PI;
use std::sync::Arc;

type Build = fn(&Arguments) -> Result<Distribution, String>;

/// A prior class by its names in bilby. Its parameters, in the order of positional arguments, are `own`, `labels` and
/// `after`.
struct Class {
    names: &'static [&'static str],
    own: &'static [&'static str],
    /// Those that only describe.
    labels: &'static [&'static str],
    after: &'static [&'static str],
    build: Build,
}

const LABELS: &[&str] = &["name", "latex_label", "unit", "boundary"];
const LABELS_WITHOUT_BOUNDARY: &[&str] = &["name", "latex_label", "unit"];

const fn class(names: &'static [&'static str], own: &'static [&'static str], build: Build) -> Class {
    Class {
        names,
        own,
        labels: LABELS,
        after: &[],
        build,
    }
}

static CLASSES: [Class; 23] = [
    class(&["Uniform"], &["minimum", "maximum"], uniform),
    class(&["Sine"], &["minimum", "maximum"], sine),
    class(&["Cosine"], &["minimum", "maximum"], cosine),
    class(&["PowerLaw"], &["alpha", "minimum", "maximum"], |arguments| {
        power_law(arguments, arguments.number("alpha")?)
    }),
    class(&["LogUniform"], &["minimum", "maximum"], |arguments| {
        power_law(arguments, -1.0)
    }),
    class(&["SymmetricLogUniform"], &["minimum", "maximum"], symmetric_log_uniform),
    class(&["Gaussian", "Normal"], &["mu", "sigma"], gaussian),
    class(
        &["TruncatedGaussian", "TruncatedNormal"],
        &["mu", "sigma", "minimum", "maximum"],
        truncated_gaussian,
    ),
    class(&["HalfGaussian", "HalfNormal"], &["sigma"], half_gaussian),
    class(&["LogNormal", "LogGaussian"], &["mu", "sigma"], log_normal),
    class(&["Exponential"], &["mu"], exponential),
    class(&["StudentT"], &["df", "mu", "scale"], student_t),
    class(&["Beta"], &["alpha", "beta", "minimum", "maximum"], beta),
    class(&["Gamma"], &["k", "theta"], gamma),
    class(&["Logistic"], &["mu", "scale"], logistic),
    class(&["Cauchy", "Lorentzian"], &["alpha", "beta"], cauchy),
    Class {
        labels: LABELS_WITHOUT_BOUNDARY,
        ..class(&["Triangular"], &["mode", "minimum", "maximum"], triangular)
    },
    Class {
        labels: LABELS_WITHOUT_BOUNDARY,
        ..class(&["DeltaFunction"], &["peak"], delta_function)
    },
    Class {
        labels: LABELS_WITHOUT_BOUNDARY,
        ..class(&["Constraint"], &["minimum", "maximum"], constraint)
    },
    class(&["Interped"], &["xx", "yy", "minimum", "maximum"], interped),
    class(
        &["UniformComovingVolume", "UniformSourceFrame"],
        &["minimum", "maximum", "cosmology"],
        cosmological::build,
    ),
    class(
        &["UniformInComponentsChirpMass"],
        &["minimum", "maximum"],
        |arguments| power_law(arguments, 1.0),
    ),
    Class {
        after: &["equal_mass"],
        ..class(&["UniformInComponentsMassRatio"], &["minimum", "maximum"], mass_ratio)
    },
];

static ALIGNED_SPIN: Class = Class {
    after: &["minimum", "maximum", "num_interp"],
    ..class(&["AlignedSpin"], &["a_prior", "z_prior"], aligned_spin::build)
};

/// The distribution that a parsed expression stands for: a call of a class, or a finite number.
pub(super) fn build(value: &Value, sampled_parameter: &str) -> Result<Distribution, String> {
    match value {
        Value::Number(peak) if peak.is_finite() => Ok(Distribution::Delta { peak: *peak }),
        Value::Call(call) => build_call(call, sampled_parameter),
        other => Err(format!("{} is neither a prior nor a finite number", other.describe())),
    }
}

fn build_call(call: &Call, sampled_parameter: &str) -> Result<Distribution, String> {
    let in_bilby = call
        .module
        .split('.')
        .next()
        .is_some_and(|package| matches!(package, "" | "bilby"));
    if !in_bilby {
        return Err(format!("'{}.{}' is not one of bilby's priors", call.module, call.class));
    }
    let class = all_classes().find(|class| class.names.contains(&call.class.as_str()));
    let class = class.ok_or_else(|| unknown_class(&call.class))?;
    let parameters = [class.own, class.labels, class.after].concat();
    let arguments = Arguments::bind(call, &parameters, sampled_parameter)?;
    (class.build)(&arguments)
}

fn all_classes() -> impl Iterator<Item = &'static Class> {
    CLASSES.iter().chain([&ALIGNED_SPIN])
}

fn unknown_class(name: &str) -> String {
    let names: Vec<&str> = all_classes().flat_map(|class| class.names).copied().collect();
    let distance = |known: &&&str| strsim::damerau_levenshtein(&known.to_lowercase(), &name.to_lowercase());
    let nearest = names.iter().min_by_key(distance).copied().unwrap_or_default();
    format!(
        "the prior class '{name}' is not known. The nearest known one is {nearest}; all are {}",
        names.join(", ")
    )
}

fn uniform(arguments: &Arguments) -> Result<Distribution, String> {
    let (minimum, maximum) = arguments.range()?;
    Ok(Distribution::Uniform { minimum, maximum })
}

fn sine(arguments: &Arguments) -> Result<Distribution, String> {
    let (minimum, maximum) = angles(arguments, 0.0, PI, "within [0, pi]")?;
    Ok(Distribution::Sine { minimum, maximum })
}

fn cosine(arguments: &Arguments) -> Result<Distribution, String> {
    let (minimum, maximum) = angles(arguments, -PI / 2.0, PI / 2.0, "within [-pi/2, pi/2]")?;
    Ok(Distribution::Cosine { minimum, maximum })
}

/// A range of angles, by default and at most from `first` to `last`.
fn angles(arguments: &Arguments, first: f64, last: f64, allowed: &str) -> Result<(f64, f64), String> {
    /// For those who write pi as 3.1416.
    const SLACK: f64 = 1e-3;
    let (minimum, maximum) = arguments.range_or(first, last)?;
    arguments.require("minimum", minimum, minimum >= first - SLACK, allowed)?;
    arguments.require("maximum", maximum, maximum <= last + SLACK, allowed)?;
    Ok((minimum, maximum))
}

fn power_law(arguments: &Arguments, alpha: f64) -> Result<Distribution, String> {
    let (minimum, maximum) = arguments.range()?;
    if alpha <= -1.0 {
        arguments.require("minimum", minimum, minimum > 0.0, "above 0")?;
    } else if alpha != 0.0 {
        arguments.require("minimum", minimum, minimum >= 0.0, "not negative")?;
    }
    Ok(Distribution::PowerLaw {
        alpha,
        minimum,
        maximum,
    })
}

fn symmetric_log_uniform(arguments: &Arguments) -> Result<Distribution, String> {
    let (minimum, maximum) = arguments.range()?;
    arguments.require("minimum", minimum, minimum > 0.0, "above 0")?;
    Ok(Distribution::SymmetricLogUniform { minimum, maximum })
}

fn gaussian(arguments: &Arguments) -> Result<Distribution, String> {
    Ok(Distribution::Gaussian {
        mu: arguments.number("mu")?,
        sigma: arguments.positive("sigma")?,
    })
}

fn truncated_gaussian(arguments: &Arguments) -> Result<Distribution, String> {
    let (mu, sigma) = (arguments.number("mu")?, arguments.positive("sigma")?);
    let (minimum, maximum) = arguments.ordered((arguments.bound("minimum")?, arguments.bound("maximum")?))?;
    // Each tail is computed on the side where it does not round to 1.
    let (low, high) = ((minimum - mu) / sigma, (maximum - mu) / sigma);
    let probability = if low > 0.0 {
        normal_cdf(-low) - normal_cdf(-high)
    } else {
        normal_cdf(high) - normal_cdf(low)
    };
    if probability <= 0.0 {
        let class = arguments.class();
        return Err(format!(
            "{class} has no probability between {minimum} and {maximum}, {low} sigma from its mean"
        ));
    }
    Ok(Distribution::TruncatedGaussian {
        mu,
        sigma,
        minimum,
        maximum,
    })
}

fn half_gaussian(arguments: &Arguments) -> Result<Distribution, String> {
    let sigma = arguments.positive("sigma")?;
    Ok(Distribution::TruncatedGaussian {
        mu: 0.0,
        sigma,
        minimum: 0.0,
        maximum: f64::INFINITY,
    })
}

fn log_normal(arguments: &Arguments) -> Result<Distribution, String> {
    Ok(Distribution::LogNormal {
        mu: arguments.number("mu")?,
        sigma: arguments.positive("sigma")?,
    })
}

fn exponential(arguments: &Arguments) -> Result<Distribution, String> {
    Ok(Distribution::Exponential {
        mu: arguments.positive("mu")?,
    })
}

fn student_t(arguments: &Arguments) -> Result<Distribution, String> {
    let degrees_of_freedom = arguments.positive("df")?;
    let (mu, scale) = (arguments.number_or("mu", 0.0)?, arguments.positive_or("scale", 1.0)?);
    Ok(Distribution::StudentT {
        degrees_of_freedom,
        mu,
        scale,
    })
}

fn beta(arguments: &Arguments) -> Result<Distribution, String> {
    let (alpha, beta) = (arguments.positive("alpha")?, arguments.positive("beta")?);
    let (minimum, maximum) = arguments.range_or(0.0, 1.0)?;
    Ok(Distribution::Beta {
        alpha,
        beta,
        minimum,
        maximum,
    })
}

fn gamma(arguments: &Arguments) -> Result<Distribution, String> {
    Ok(Distribution::Gamma {
        shape: arguments.positive("k")?,
        scale: arguments.positive_or("theta", 1.0)?,
    })
}

fn logistic(arguments: &Arguments) -> Result<Distribution, String> {
    Ok(Distribution::Logistic {
        mu: arguments.number("mu")?,
        scale: arguments.positive("scale")?,
    })
}

fn cauchy(arguments: &Arguments) -> Result<Distribution, String> {
    Ok(Distribution::Cauchy {
        location: arguments.number("alpha")?,
        scale: arguments.positive("beta")?,
    })
}

fn triangular(arguments: &Arguments) -> Result<Distribution, String> {
    let (minimum, maximum) = arguments.range()?;
    let mode = arguments.number("mode")?;
    arguments.require(
        "mode",
        mode,
        (minimum..=maximum).contains(&mode),
        "between minimum and maximum",
    )?;
    Ok(Distribution::Triangular { mode, minimum, maximum })
}

fn delta_function(arguments: &Arguments) -> Result<Distribution, String> {
    Ok(Distribution::Delta {
        peak: arguments.number("peak")?,
    })
}

fn constraint(arguments: &Arguments) -> Result<Distribution, String> {
    let (minimum, maximum) = arguments.ordered((arguments.bound("minimum")?, arguments.bound("maximum")?))?;
    Ok(Distribution::Constraint { minimum, maximum })
}

fn mass_ratio(arguments: &Arguments) -> Result<Distribution, String> {
    let (minimum, maximum) = arguments.range()?;
    arguments.require("minimum", minimum, minimum > 0.0, "above 0")?;
    let equal_mass = arguments.bool_or("equal_mass", false)?;
    Ok(Distribution::MassRatio(MassRatio::new(minimum, maximum, equal_mass)))
}

fn interped(arguments: &Arguments) -> Result<Distribution, String> {
    let (xx, yy) = (arguments.numbers("xx")?, arguments.numbers("yy")?);
    let bounds = [
        arguments.optional_number("minimum")?,
        arguments.optional_number("maximum")?,
    ];
    let tabulated = Tabulated::new(&xx, &yy, bounds).map_err(|problem| format!("{}: {problem}", arguments.class()))?;
    Ok(Distribution::Tabulated(Arc::new(tabulated)))
}
