//! bilby's `AlignedSpin`: the spin component along the orbital angular momentum, chi = a cos(tilt), for given priors of
//! the spin magnitude a and of z = cos(tilt).

use super::arguments::Arguments;
use super::classes;
use super::distribution::Distribution;
use super::tabulated::Tabulated;
use crate::gw::numerics::{linspace, Quadrature};
use std::sync::Arc;

/// bilby's grids: where the density is known in closed form, and where it is an integral.
const POINTS_CLOSED_FORM: usize = 100_000;
const POINTS_INTEGRATED: usize = 10_000;
/// Beyond this a table of the density has nothing to gain.
const MAX_POINTS: f64 = 1e7;
/// Panels for the integral over ln(a), which has no kinks but may span many powers of ten.
const PANELS: usize = 8;

pub(super) fn build(arguments: &Arguments) -> Result<Distribution, String> {
    let magnitude = component(
        arguments,
        "a_prior",
        Distribution::Uniform {
            minimum: 0.0,
            maximum: 1.0,
        },
    )?;
    let cosine = component(
        arguments,
        "z_prior",
        Distribution::Uniform {
            minimum: -1.0,
            maximum: 1.0,
        },
    )?;
    let ((a_min, a_max), (z_min, z_max)) = (magnitude.bounds(), cosine.bounds());
    if a_min < 0.0 {
        return Err(format!(
            "a_prior of AlignedSpin reaches down to {a_min}, but a magnitude is not negative"
        ));
    }
    let (chi_min, chi_max) = ((a_max * z_min).min(a_min * z_max), a_max * z_max);

    let uniform = matches!(
        (&magnitude, &cosine),
        (Distribution::Uniform { .. }, Distribution::Uniform { .. })
    );
    let isotropic = uniform && (z_min, z_max) == (-1.0, 1.0);
    let default_points = if isotropic {
        POINTS_CLOSED_FORM
    } else {
        POINTS_INTEGRATED
    };
    let grid = linspace(chi_min, chi_max, number_of_points(arguments, default_points)?);
    let mut density: Vec<f64> = match isotropic {
        // bilby takes a_prior to begin at 0 here, wherever it does.
        true => grid.iter().map(|chi| -(chi.abs() / a_max).ln().min(0.0)).collect(),
        false => {
            let quadrature = Quadrature::new();
            grid.iter()
                .map(|&chi| integrated_density(&quadrature, &magnitude, &cosine, chi))
                .collect()
        }
    };
    // At chi = 0 the density of a magnitude that may vanish is infinite (but integrable).
    for i in 0..density.len() {
        if density[i].is_infinite() {
            let neighbors = [i.wrapping_sub(1), i + 1].map(|j| density.get(j).copied().unwrap_or(0.0));
            density[i] = neighbors
                .into_iter()
                .filter(|value| value.is_finite())
                .fold(0.0, f64::max);
        }
    }
    let bounds = [
        arguments.optional_number("minimum")?,
        arguments.optional_number("maximum")?,
    ];
    let tabulated = Tabulated::new(&grid, &density, bounds).map_err(|problem| format!("AlignedSpin: {problem}"))?;
    Ok(Distribution::Tabulated(Arc::new(tabulated)))
}

/// The nested prior of that name: one with a bounded density, so that chi has one.
fn component(arguments: &Arguments, name: &str, default: Distribution) -> Result<Distribution, String> {
    let Some(value) = arguments.get(name) else {
        return Ok(default);
    };
    let distribution = classes::build(value, name).map_err(|problem| format!("{name} of AlignedSpin: {problem}"))?;
    let (minimum, maximum) = distribution.bounds();
    match density(&distribution, 0.5 * (minimum + maximum)) {
        Some(_) if minimum.is_finite() && maximum.is_finite() => Ok(distribution),
        _ => Err(arguments.invalid(
            name,
            &value.describe(),
            "a bounded prior such as Uniform, PowerLaw, Sine or Beta",
        )),
    }
}

fn number_of_points(arguments: &Arguments, default: usize) -> Result<usize, String> {
    match arguments.optional_number("num_interp")? {
        None => Ok(default),
        Some(number) if number.fract() == 0.0 && (2.0..=MAX_POINTS).contains(&number) => Ok(number as usize),
        Some(number) => Err(arguments.invalid("num_interp", &number.to_string(), "a whole number from 2 to 10000000")),
    }
}

/// Density of chi up to a factor: the integral over ln(a) of p(a) p(z = chi / a), where both have support.
fn integrated_density(quadrature: &Quadrature, magnitude: &Distribution, cosine: &Distribution, chi: f64) -> f64 {
    let ((a_min, a_max), (z_min, z_max)) = (magnitude.bounds(), cosine.bounds());
    // Where chi / a reaches the bound of z on chi's side, and on the other if that has the same sign.
    let (far, near) = if chi >= 0.0 { (z_max, z_min) } else { (z_min, z_max) };
    let low = if chi == 0.0 { a_min } else { a_min.max(chi / far) };
    let high = if chi * near > 0.0 { a_max.min(chi / near) } else { a_max };
    if low >= high {
        return 0.0;
    }
    if low == 0.0 {
        return f64::INFINITY;
    }
    let integrand = |log_a: f64| {
        let a = log_a.exp();
        density(magnitude, a).unwrap_or(0.0) * density(cosine, chi / a).unwrap_or(0.0)
    };
    quadrature.integrate(low.ln(), high.ln(), PANELS, integrand)
}

/// Density at `x` within the support, up to a factor; `None` for distributions that are no use here.
fn density(distribution: &Distribution, x: f64) -> Option<f64> {
    let density = match *distribution {
        Distribution::Uniform { .. } => 1.0,
        Distribution::Sine { .. } => x.sin(),
        Distribution::Cosine { .. } => x.cos(),
        Distribution::PowerLaw { alpha, .. } => x.powf(alpha),
        Distribution::TruncatedGaussian { mu, sigma, .. } => (-0.5 * ((x - mu) / sigma).powi(2)).exp(),
        Distribution::Beta {
            alpha,
            beta,
            minimum,
            maximum,
        } => (x - minimum).max(0.0).powf(alpha - 1.0) * (maximum - x).max(0.0).powf(beta - 1.0),
        Distribution::Triangular { mode, minimum, maximum } => match x < mode {
            true => (x - minimum) / (mode - minimum),
            false if mode == maximum => 1.0,
            false => (maximum - x) / (maximum - mode),
        },
        Distribution::Tabulated(ref tabulated) => tabulated.density(x),
        _ => return None,
    };
    Some(density)
}
