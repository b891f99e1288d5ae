//! bilby's priors of distance or redshift that are uniform in volume.

use super::arguments::Arguments;
use super::distribution::Distribution;
use super::tabulated::Tabulated;
use crate::gw::cosmology::Cosmology;
use crate::gw::numerics::linspace;
use std::sync::Arc;

/// Points of bilby's table in redshift, and how far it reaches beyond the bounds.
const POINTS: usize = 1000;
const MARGIN: f64 = 0.01;

/// What the prior is a prior of.
#[derive(Clone, Copy, PartialEq)]
enum Quantity {
    Redshift,
    LuminosityDistance,
    ComovingDistance,
}

const QUANTITIES: [(&str, Quantity); 3] = [
    ("luminosity_distance", Quantity::LuminosityDistance),
    ("comoving_distance", Quantity::ComovingDistance),
    ("redshift", Quantity::Redshift),
];

/// `UniformComovingVolume` and `UniformSourceFrame`: the same merger rate in every comoving volume, seen in the
/// detector's time or in the source's, which dilates by 1 + z.
pub(super) fn build(arguments: &Arguments) -> Result<Distribution, String> {
    let source_frame = arguments.class() == "UniformSourceFrame";
    let (minimum, maximum) = arguments.range()?;
    arguments.require("minimum", minimum, minimum >= 0.0, "not negative")?;
    let quantity = quantity(arguments)?;
    let cosmology = cosmology(arguments)?;
    let redshift = |name, bound| {
        let redshift = quantity.redshift(&cosmology, bound);
        redshift.ok_or_else(|| arguments.invalid(name, &bound.to_string(), "below redshift 1000"))
    };
    let first = redshift("minimum", minimum)? * (1.0 - MARGIN);
    let last = redshift("maximum", maximum)? * (1.0 + MARGIN);

    let redshifts = linspace(first, last, POINTS);
    let places: Vec<f64> = redshifts.iter().map(|&z| quantity.value(&cosmology, z)).collect();
    let density = |&z: &f64| {
        let dilation = if source_frame { 1.0 + z } else { 1.0 };
        cosmology.differential_comoving_volume(z) / dilation / quantity.slope(&cosmology, z)
    };
    let densities: Vec<f64> = redshifts.iter().map(density).collect();
    let tabulated = Tabulated::new(&places, &densities, [Some(minimum), Some(maximum)])
        .map_err(|problem| format!("{}: {problem}", arguments.class()))?;
    Ok(Distribution::Tabulated(Arc::new(tabulated)))
}

/// bilby goes by the prior's name; without one, the parameter says what it is.
fn quantity(arguments: &Arguments) -> Result<Quantity, String> {
    let name = arguments.text("name")?.unwrap_or(arguments.sampled_parameter());
    let known = QUANTITIES.iter().find(|(known, _)| *known == name);
    known.map(|(_, quantity)| *quantity).ok_or_else(|| {
        let allowed = QUANTITIES.map(|(name, _)| format!("'{name}'")).join(", ");
        arguments.invalid("name", &format!("'{name}'"), &format!("one of {allowed}"))
    })
}

fn cosmology(arguments: &Arguments) -> Result<Cosmology, String> {
    let Some(name) = arguments.text("cosmology")? else {
        return Ok(Cosmology::planck15());
    };
    Cosmology::by_name(name).ok_or_else(|| {
        let allowed = format!("one of {}", Cosmology::known_names().join(", "));
        arguments.invalid("cosmology", &format!("'{name}'"), &allowed)
    })
}

impl Quantity {
    fn value(self, cosmology: &Cosmology, z: f64) -> f64 {
        match self {
            Quantity::Redshift => z,
            Quantity::LuminosityDistance => cosmology.luminosity_distance(z),
            Quantity::ComovingDistance => cosmology.comoving_distance(z),
        }
    }

    /// Derivative of the value by redshift.
    fn slope(self, cosmology: &Cosmology, z: f64) -> f64 {
        match self {
            Quantity::Redshift => 1.0,
            Quantity::LuminosityDistance => cosmology.luminosity_distance_slope(z),
            Quantity::ComovingDistance => cosmology.comoving_distance_slope(z),
        }
    }

    /// The redshift where the quantity has this value; `None` beyond redshift 1000.
    fn redshift(self, cosmology: &Cosmology, value: f64) -> Option<f64> {
        match self {
            Quantity::Redshift => (value <= 1000.0).then_some(value),
            Quantity::LuminosityDistance => cosmology.redshift_at_luminosity_distance(value),
            Quantity::ComovingDistance => cosmology.redshift_at_comoving_distance(value),
        }
    }
}
