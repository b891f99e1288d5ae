//! All random values of a batch, drawn before anything is computed from them.

use std::ops::Range;

use indexmap::IndexMap;

use super::random::{below, Purpose, SampleRandom};
use super::transforms::{Cropping, ExtrinsicPrior};
use crate::torch_ext::random::RandomStream;

/// The random values of some samples. Each is a function of (seed, epoch, sample index) alone.
#[derive(Debug, Clone, PartialEq)]
pub struct Draws {
    /// Extrinsic parameters by name, `[samples]` each; s, rad, Mpc.
    pub extrinsic: IndexMap<String, Vec<f64>>,
    pub asds: AsdDraws,
    /// Where a sample's noise comes from, `[samples][detectors]`; `None` adds no noise.
    pub noise: Option<Vec<Vec<RandomStream>>>,
    /// Bins from f_min on that cropping keeps, `[samples][detectors]`; `None` keeps all.
    pub cropping: Option<Vec<Vec<Range<usize>>>>,
}

/// The noise spectra of some samples.
#[derive(Debug, Clone, PartialEq)]
pub enum AsdDraws {
    /// Numbers in the ASD dataset, `[samples][detectors]`.
    Indices(Vec<Vec<usize>>),
    /// The spectra themselves, `[samples][detectors][bins]` from bin 0 on, 1/sqrt(Hz): samples recorded elsewhere.
    Spectra(Vec<Vec<Vec<f32>>>),
}

/// Draws what samples need.
#[derive(Debug, Clone)]
pub struct Sampler {
    pub seed: u64,
    pub prior: ExtrinsicPrior,
    /// Spectra that there are, by detector.
    pub num_asds: Vec<usize>,
    pub noise: bool,
    pub cropping: Option<Cropping>,
}

impl Sampler {
    /// The draws of these samples in this epoch. As in Dingo, each detector's spectrum is drawn on its own.
    pub fn draw(&self, indices: &[usize], epoch: u64) -> Draws {
        let detectors = self.num_asds.len();
        let random = |purpose, lane, index: usize| SampleRandom::new(self.seed, purpose, lane, epoch, index as u64);
        let noise = |&index: &usize| {
            (0..detectors)
                .map(|lane| random(Purpose::Noise, lane, index).stream())
                .collect()
        };
        let crop = |cropping: &Cropping, index| cropping.draw(detectors, |lane| random(Purpose::Cropping, lane, index));
        Draws {
            extrinsic: extrinsic(&self.prior, self.seed, Purpose::Extrinsic, epoch, indices),
            asds: self.asds(Purpose::Asd, epoch, indices),
            noise: self.noise.then(|| indices.iter().map(noise).collect()),
            cropping: self
                .cropping
                .as_ref()
                .map(|cropping| indices.iter().map(|&i| crop(cropping, i)).collect()),
        }
    }

    /// Draws for clean waveforms: from `prior`, the same in all epochs, without noise and cropping.
    pub fn draw_clean(&self, prior: &ExtrinsicPrior, indices: &[usize]) -> Draws {
        Draws {
            extrinsic: extrinsic(prior, self.seed, Purpose::CleanExtrinsic, 0, indices),
            asds: self.asds(Purpose::CleanAsd, 0, indices),
            noise: None,
            cropping: None,
        }
    }

    fn asds(&self, purpose: Purpose, epoch: u64, indices: &[usize]) -> AsdDraws {
        let draw = |(lane, &count): (usize, &usize), index: usize| {
            let [bits, _] = SampleRandom::new(self.seed, purpose, lane, epoch, index as u64).bits(0);
            below(bits, count as u64) as usize
        };
        let of_sample = |&index: &usize| {
            self.num_asds
                .iter()
                .enumerate()
                .map(|count| draw(count, index))
                .collect()
        };
        AsdDraws::Indices(indices.iter().map(of_sample).collect())
    }
}

/// Extrinsic parameters of these samples by inverse CDF; a parameter's place in the prior is the lane.
pub(super) fn extrinsic(
    prior: &ExtrinsicPrior,
    seed: u64,
    purpose: Purpose,
    epoch: u64,
    indices: &[usize],
) -> IndexMap<String, Vec<f64>> {
    let draw = |(lane, (name, prior)): (usize, (&str, &crate::gw::prior::Prior))| {
        let value = |&index: &usize| {
            let [u, _] = SampleRandom::new(seed, purpose, lane, epoch, index as u64).uniforms(0);
            prior.rescale(u)
        };
        (name.to_string(), indices.iter().map(value).collect())
    };
    prior.iter().enumerate().map(draw).collect()
}
