//! The strain of an inspiral in the stationary phase approximation, to 1.5 post-Newtonian order (Cutler and Flanagan 1994,
//! arXiv:gr-qc/9402014), ended smoothly where the holes merge.

use crate::gw::domain::UniformFrequencyDomain;
use num_complex::Complex64;
use std::f64::consts::PI;

/// G M_sun / c³, s.
const SOLAR_MASS: f64 = 4.925490947e-6;
/// Mpc / c, s.
const MEGAPARSEC: f64 = 1.029271250e14;
/// Where the waveform ends, as π M f: the frequency of the last stable orbit is at 6^(-3/2), and the merger goes on above.
const END: f64 = 0.15;

/// Powers of the frequency of each bin that phase and amplitude are made of; bins at 0 Hz have zeros.
pub struct Powers {
    bins: Vec<BinPowers>,
}

#[derive(Clone, Copy, Default)]
struct BinPowers {
    frequency: f64,
    /// f^(-7/6), of the amplitude.
    amplitude: f64,
    /// f^(-5/3), f^(-1), f^(-2/3), of the phase.
    phase: [f64; 3],
}

impl Powers {
    pub fn on(domain: &UniformFrequencyDomain) -> Powers {
        let of = |bin: usize| match bin as f64 * domain.delta_f {
            0.0 => BinPowers::default(),
            frequency => BinPowers {
                frequency,
                amplitude: frequency.powf(-7.0 / 6.0),
                phase: [-5.0 / 3.0, -1.0, -2.0 / 3.0].map(|power| frequency.powf(power)),
            },
        };
        Powers {
            bins: (0..domain.num_bins()).map(of).collect(),
        }
    }
}

/// A binary with aligned spins, seen face on.
pub struct Inspiral {
    /// Solar masses.
    pub chirp_mass: f64,
    /// Smaller over larger.
    pub mass_ratio: f64,
    pub chi_1: f64,
    pub chi_2: f64,
    pub phase: f64,
    /// Mpc.
    pub distance: f64,
}

impl Inspiral {
    /// Of each bin, 1/Hz.
    pub fn strain<'p>(&self, powers: &'p Powers) -> impl Iterator<Item = Complex64> + 'p {
        let ratio = self.mass_ratio;
        let eta = ratio / (1.0 + ratio).powi(2);
        let chirp = self.chirp_mass * SOLAR_MASS;
        let total = chirp * eta.powf(-0.6);
        let amplitude =
            (5.0f64 / 24.0).sqrt() * PI.powf(-2.0 / 3.0) * chirp.powf(5.0 / 6.0) / (self.distance * MEGAPARSEC);
        let end = END / (PI * total);

        // Spin-orbit coupling of aligned spins.
        let larger = 1.0 / (1.0 + ratio);
        let of_spin = |share: f64, chi: f64| (113.0 / 12.0 * share * share + 25.0 / 4.0 * eta) * chi;
        let beta = of_spin(larger, self.chi_1) + of_spin(1.0 - larger, self.chi_2);
        let newtonian = 3.0 / (128.0 * eta);
        let mass = PI * total;
        let phase = [
            newtonian * mass.powf(-5.0 / 3.0),
            newtonian * (20.0 / 9.0) * (743.0 / 336.0 + 11.0 / 4.0 * eta) / mass,
            newtonian * (4.0 * beta - 16.0 * PI) * mass.powf(-2.0 / 3.0),
        ];
        // Twice the orbital phase.
        let start = 2.0 * self.phase + PI / 4.0;
        powers.bins.iter().map(move |bin| {
            let psi: f64 = phase.iter().zip(bin.phase).map(|(factor, power)| factor * power).sum();
            let taper = 1.0 / (1.0 + (bin.frequency / end).powi(8));
            Complex64::from_polar(amplitude * bin.amplitude * taper, start - psi)
        })
    }
}
