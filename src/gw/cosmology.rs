//! Distances of the Planck15 cosmology (radiation and massive neutrinos included), and of its like.

use super::numerics::{solve_increasing, Quadrature};
use std::f64::consts::PI;

// CODATA 2018 and IAU 2015 values, in SI units: those of astropy.
const SPEED_OF_LIGHT: f64 = 299_792_458.0;
const GRAVITATIONAL_CONSTANT: f64 = 6.674_3e-11;
const STEFAN_BOLTZMANN: f64 = 5.670_374_419e-8;
const METERS_PER_MEGAPARSEC: f64 = 3.085_677_581_491_367e22;
/// Boltzmann's constant in eV/K.
const BOLTZMANN: f64 = 8.617_333_262_145_179e-5;

/// Temperature of the neutrino background in units of the microwave background's: (4/11)^(1/3).
const NEUTRINO_TEMPERATURE: f64 = 0.713_765_855_503_608_2;
/// Energy density of one massless neutrino species in units of the photons': 7/8 (4/11)^(4/3).
const NEUTRINO_DENSITY: f64 = 0.227_107_317_66;
const NEUTRINO_SPECIES: usize = 3;

/// Beyond this redshift no distance is looked for; bilby's limit too.
const MAX_REDSHIFT: f64 = 1000.0;

/// A flat universe of matter, dark energy, photons and neutrinos.
#[derive(Debug, Clone, PartialEq)]
pub struct Cosmology {
    /// Speed of light over the Hubble constant (Mpc).
    hubble_distance: f64,
    matter: f64,
    photons: f64,
    dark_energy: f64,
    neutrinos: Neutrinos,
    quadrature: Quadrature,
}

#[derive(Debug, Clone, PartialEq)]
struct Neutrinos {
    effective_species: f64,
    /// Rest energy in units of the temperature today, for each species that has mass.
    masses: Vec<f64>,
}

/// Parameters as published, in the units of the field.
struct Parameters {
    name: &'static str,
    /// km / s / Mpc
    hubble_constant: f64,
    matter: f64,
    /// K
    temperature: f64,
    effective_species: f64,
    /// eV, of the massive species
    neutrino_mass: Option<f64>,
}

const fn planck(name: &'static str, hubble_constant: f64, matter: f64) -> Parameters {
    let (temperature, effective_species, neutrino_mass) = (2.7255, 3.046, Some(0.06));
    Parameters {
        name,
        hubble_constant,
        matter,
        temperature,
        effective_species,
        neutrino_mass,
    }
}

const fn wmap(name: &'static str, hubble_constant: f64, matter: f64) -> Parameters {
    let (temperature, effective_species, neutrino_mass) = (2.725, 3.04, None);
    Parameters {
        name,
        hubble_constant,
        matter,
        temperature,
        effective_species,
        neutrino_mass,
    }
}

/// astropy's realizations, and LAL's (LIGO-T2000185), which knows no radiation.
const KNOWN: [Parameters; 9] = [
    planck("Planck15", 67.74, 0.3075),
    planck("Planck13", 67.77, 0.30712),
    planck("Planck18", 67.66, 0.30966),
    wmap("WMAP1", 72.0, 0.257),
    wmap("WMAP3", 70.1, 0.276),
    wmap("WMAP5", 70.2, 0.277),
    wmap("WMAP7", 70.4, 0.272),
    wmap("WMAP9", 69.32, 0.2865),
    Parameters {
        name: "Planck15_LAL",
        hubble_constant: 2.200_489_137_532_724e-18 * METERS_PER_MEGAPARSEC / 1e3,
        matter: 0.3065,
        temperature: 0.0,
        effective_species: 0.0,
        neutrino_mass: None,
    },
];

impl Cosmology {
    /// bilby's default.
    pub fn planck15() -> Cosmology {
        Cosmology::new(&KNOWN[0])
    }

    /// The cosmology that bilby and astropy call by this name.
    pub fn by_name(name: &str) -> Option<Cosmology> {
        KNOWN
            .iter()
            .find(|known| known.name.eq_ignore_ascii_case(name))
            .map(Cosmology::new)
    }

    /// The names that [`Cosmology::by_name`] knows.
    pub fn known_names() -> Vec<&'static str> {
        KNOWN.iter().map(|known| known.name).collect()
    }

    fn new(parameters: &Parameters) -> Cosmology {
        let hubble_rate = parameters.hubble_constant * 1e3 / METERS_PER_MEGAPARSEC;
        let critical_density = 3.0 * hubble_rate.powi(2) / (8.0 * PI * GRAVITATIONAL_CONSTANT);
        let photon_density = 4.0 * STEFAN_BOLTZMANN / SPEED_OF_LIGHT.powi(3) * parameters.temperature.powi(4);
        let neutrino_energy = BOLTZMANN * NEUTRINO_TEMPERATURE * parameters.temperature;
        let mut cosmology = Cosmology {
            hubble_distance: SPEED_OF_LIGHT / 1e3 / parameters.hubble_constant,
            matter: parameters.matter,
            photons: photon_density / critical_density,
            dark_energy: 0.0,
            neutrinos: Neutrinos {
                effective_species: parameters.effective_species,
                masses: parameters
                    .neutrino_mass
                    .iter()
                    .map(|mass| mass / neutrino_energy)
                    .collect(),
            },
            quadrature: Quadrature::new(),
        };
        cosmology.dark_energy =
            1.0 - cosmology.matter - cosmology.photons * (1.0 + cosmology.neutrinos.density_over_photons(0.0));
        cosmology
    }

    /// Hubble rate at redshift `z` in units of today's.
    fn expansion_rate(&self, z: f64) -> f64 {
        let scale = 1.0 + z;
        let radiation = self.photons * (1.0 + self.neutrinos.density_over_photons(z));
        (self.dark_energy + scale.powi(3) * (self.matter + scale * radiation)).sqrt()
    }

    /// Comoving distance (Mpc) to redshift `z`.
    pub fn comoving_distance(&self, z: f64) -> f64 {
        // In ln(1 + z) the integrand is smooth enough for one panel per unit at any redshift.
        let end = z.ln_1p();
        let integrand = |log_scale: f64| log_scale.exp() / self.expansion_rate(log_scale.exp_m1());
        self.hubble_distance * self.quadrature.integrate(0.0, end, 1 + end as usize, integrand)
    }

    /// Luminosity distance (Mpc) of redshift `z`.
    pub fn luminosity_distance(&self, z: f64) -> f64 {
        (1.0 + z) * self.comoving_distance(z)
    }

    /// Derivative of the comoving distance by redshift (Mpc).
    pub fn comoving_distance_slope(&self, z: f64) -> f64 {
        self.hubble_distance / self.expansion_rate(z)
    }

    /// Derivative of the luminosity distance by redshift (Mpc).
    pub fn luminosity_distance_slope(&self, z: f64) -> f64 {
        self.comoving_distance(z) + (1.0 + z) * self.comoving_distance_slope(z)
    }

    /// Comoving volume per redshift and solid angle (Mpc^3 / sr).
    pub fn differential_comoving_volume(&self, z: f64) -> f64 {
        self.comoving_distance(z).powi(2) * self.comoving_distance_slope(z)
    }

    /// Redshift at a luminosity distance (Mpc); `None` if that is negative or lies beyond redshift 1000.
    pub fn redshift_at_luminosity_distance(&self, distance: f64) -> Option<f64> {
        redshift_at(distance, |z| {
            (self.luminosity_distance(z), self.luminosity_distance_slope(z))
        })
    }

    /// Redshift at a comoving distance (Mpc); `None` if that is negative or lies beyond redshift 1000.
    pub fn redshift_at_comoving_distance(&self, distance: f64) -> Option<f64> {
        redshift_at(distance, |z| {
            (self.comoving_distance(z), self.comoving_distance_slope(z))
        })
    }
}

/// Inverts a distance, given as value and slope.
fn redshift_at(distance: f64, function: impl Fn(f64) -> (f64, f64)) -> Option<f64> {
    match distance {
        0.0 => Some(0.0),
        _ if distance > 0.0 && distance <= function(MAX_REDSHIFT).0 => {
            Some(solve_increasing(distance, 0.0, MAX_REDSHIFT, function))
        }
        _ => None,
    }
}

impl Neutrinos {
    /// Energy density of all species over that of the photons at redshift `z`: the fit of Komatsu et al. (2011),
    /// arXiv:1001.4538, equation 26, which is astropy's.
    fn density_over_photons(&self, z: f64) -> f64 {
        const EXPONENT: f64 = 1.83;
        const MASS_FACTOR: f64 = 0.3173;
        let massive = self
            .masses
            .iter()
            .map(|mass| (1.0 + (MASS_FACTOR * mass / (1.0 + z)).powf(EXPONENT)).powf(1.0 / EXPONENT));
        let massless = (NEUTRINO_SPECIES - self.masses.len()) as f64;
        NEUTRINO_DENSITY * self.effective_species / NEUTRINO_SPECIES as f64 * (massless + massive.sum::<f64>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Expected values (Mpc): `astropy.cosmology`, and bilby's for Planck15_LAL.
    #[test]
    fn luminosity_distances_are_astropys() {
        let expected = [
            ("Planck15", 0.001, 4.429032864588028),
            ("Planck15", 0.1, 475.3369371836559),
            ("Planck15", 1.0, 6791.810623950696),
            ("Planck15", 10.0, 106140.23872529229),
            ("Planck13", 0.5, 2917.4321154817594),
            ("Planck18", 0.5, 2919.6249521806776),
            ("WMAP1", 0.5, 2796.4462844286754),
            ("WMAP9", 0.5, 2874.104125862455),
            ("Planck15_LAL", 0.5, 2914.0041032710014),
        ];
        for (name, z, distance) in expected {
            let cosmology = Cosmology::by_name(name).unwrap();
            let value = cosmology.luminosity_distance(z);
            assert!(
                (value / distance - 1.0).abs() < 1e-8,
                "{name} at {z}: {value}, expected {distance}"
            );
            let redshift = cosmology.redshift_at_luminosity_distance(distance).unwrap();
            assert!(
                (redshift / z - 1.0).abs() < 1e-8,
                "{name} at {distance} Mpc: {redshift}, expected {z}"
            );
        }
    }

    #[test]
    fn redshift_inverts_both_distances() {
        let cosmology = Cosmology::planck15();
        for z in [1e-4, 0.3, 20.0] {
            let distance = cosmology.comoving_distance(z);
            assert!((cosmology.redshift_at_comoving_distance(distance).unwrap() / z - 1.0).abs() < 1e-12);
        }
        assert_eq!(cosmology.redshift_at_comoving_distance(0.0), Some(0.0));
        assert_eq!(cosmology.redshift_at_comoving_distance(20_000.0), None);
        assert_eq!(cosmology.redshift_at_luminosity_distance(-1.0), None);
    }
}
