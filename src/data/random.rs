//! Random numbers of the samples: every one is a function of (seed, purpose, epoch, sample index) and nothing else.
//!
//! So the stream of samples depends neither on the number of ranks or threads, nor on the order in which batches are made,
//! nor on where a run was interrupted. The generator is Philox4x32-10; the seed is its key, and the rest its counter:
//!
//! | counter word | holds |
//! |---|---|
//! | 0 | position within the stream, in blocks of 128 bits |
//! | 1 | sample index, low 32 bits |
//! | 2 | epoch |
//! | 3 | purpose (8 bits), lane (8 bits), sample index, high 16 bits |
//!
//! The lane tells detectors or parameters apart. No two streams share a block.

use crate::torch_ext::random::RandomStream;

/// What a random number is for. The values are part of what makes a run reproducible: never renumber them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Purpose {
    /// The order of an epoch's samples.
    Shuffle = 1,
    /// Extrinsic parameters; the lane is the parameter's number in the prior.
    Extrinsic = 2,
    /// Which noise spectrum a detector has; the lane is the detector's number.
    Asd = 3,
    /// Detector noise; the lane is the detector's number.
    Noise = 4,
    /// Cropping boundaries; the lane is the detector's number.
    Cropping = 5,
    /// Extrinsic parameters of the clean waveforms that the embedding network's basis is built on.
    CleanExtrinsic = 6,
    /// Noise spectra of those waveforms.
    CleanAsd = 7,
    /// Extrinsic parameters for numerical standardization.
    Standardization = 8,
}

/// The random numbers of one sample for one purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SampleRandom {
    stream: RandomStream,
}

impl SampleRandom {
    /// `epoch` counts up to 2³², `lane` up to 2⁸ and `sample` up to 2⁴⁸; higher bits are ignored.
    pub fn new(seed: u64, purpose: Purpose, lane: usize, epoch: u64, sample: u64) -> SampleRandom {
        let labels = (u32::from(purpose as u8) << 24) | ((lane as u32 & 0xFF) << 16) | ((sample >> 32) as u32 & 0xFFFF);
        let key = [seed as u32, (seed >> 32) as u32];
        SampleRandom {
            stream: RandomStream {
                key,
                counter: [sample as u32, epoch as u32, labels],
            },
        }
    }

    /// The generator's own stream, for kernels that draw from it.
    pub fn stream(&self) -> RandomStream {
        self.stream
    }

    /// Two random 64-bit numbers.
    pub fn bits(&self, position: u32) -> [u64; 2] {
        pair(self.stream.block(position))
    }

    /// Two uniform deviates in the open interval (0, 1), with 53 significant bits.
    pub fn uniforms(&self, position: u32) -> [f64; 2] {
        self.bits(position).map(open_unit_interval)
    }
}

/// A random permutation of 0 to n - 1: the order of an epoch's samples (n below 2³²).
pub fn permutation(seed: u64, epoch: u64, n: usize) -> Vec<u32> {
    // Fisher and Yates' shuffle. The generator works on many blocks at once.
    let stream = SampleRandom::new(seed, Purpose::Shuffle, 0, epoch, 0).stream;
    let mut order: Vec<u32> = (0..n as u32).collect();
    let mut blocks = [[0; 4]; 256];
    let swaps = n.saturating_sub(1);
    for start in (0..swaps).step_by(2 * blocks.len()) {
        stream.blocks((start / 2) as u32, &mut blocks);
        let bits = blocks.iter().flat_map(|&block| pair(block));
        for (swap, bits) in (start..swaps).zip(bits) {
            let last = n - 1 - swap;
            order.swap(last, below(bits, last as u64 + 1) as usize);
        }
    }
    order
}

fn pair([a, b, c, d]: [u32; 4]) -> [u64; 2] {
    [u64::from(a) | u64::from(b) << 32, u64::from(c) | u64::from(d) << 32]
}

/// The middle of one of 2⁵² equal intervals: neither 0 nor 1, where an inverse CDF may be infinite.
fn open_unit_interval(bits: u64) -> f64 {
    ((bits >> 12) as f64 + 0.5) / (1u64 << 52) as f64
}

/// A number from 0 to n - 1. Their probabilities differ by less than n / 2⁶⁴, which nothing can notice.
pub fn below(bits: u64, n: u64) -> u64 {
    ((u128::from(bits) * u128::from(n)) >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn streams_differ_in_every_argument() {
        let base = (1u64, Purpose::Extrinsic, 0usize, 0u64, 0u64);
        let mut streams = vec![base];
        streams.extend([0, 33, 63].map(|bit| (base.0 ^ 1 << bit, base.1, base.2, base.3, base.4)));
        streams.push((base.0, Purpose::Asd, base.2, base.3, base.4));
        streams.extend([1, 128].map(|lane| (base.0, base.1, lane, base.3, base.4)));
        streams.extend([1, 1 << 31].map(|epoch| (base.0, base.1, base.2, epoch, base.4)));
        streams.extend([1, 1 << 31, 1 << 32, 1 << 47].map(|sample| (base.0, base.1, base.2, base.3, sample)));
        let distinct: HashSet<[u64; 2]> = streams
            .iter()
            .map(|&(a, b, c, d, e)| SampleRandom::new(a, b, c, d, e).bits(0))
            .collect();
        assert_eq!(distinct.len(), streams.len());
    }

    #[test]
    fn uniforms_are_uniform_and_inside() {
        assert!(open_unit_interval(0) > 0.0 && open_unit_interval(u64::MAX) < 1.0);
        let n = 200_000;
        let mut values: Vec<f64> = (0..n / 2)
            .flat_map(|i| SampleRandom::new(5, Purpose::Extrinsic, 1, 3, i).uniforms(0))
            .collect();
        values.sort_by(f64::total_cmp);
        let n = n as f64;
        let distance = values
            .iter()
            .enumerate()
            .map(|(i, u)| (u - (i as f64 + 0.5) / n).abs())
            .fold(0.0, f64::max);
        assert!(
            distance * n.sqrt() < 1.95,
            "Kolmogorov-Smirnov: {}",
            distance * n.sqrt()
        );
    }

    #[test]
    fn permutations_are_permutations_and_even() {
        for n in [0, 1, 2, 511, 512, 513, 514, 5000] {
            let mut order = permutation(3, 4, n);
            assert!(n < 100 || order.iter().enumerate().filter(|(i, &x)| *i == x as usize).count() < 20);
            order.sort_unstable();
            assert!(order.iter().enumerate().all(|(i, &x)| i == x as usize));
        }
        assert_ne!(permutation(3, 4, 100), permutation(3, 5, 100));
        assert_ne!(permutation(3, 4, 100), permutation(4, 4, 100));
        // Each of the 24 orders of four, over 24,000 epochs: chi-squared with 23 degrees of freedom below its 0.1% point.
        let mut counts = std::collections::HashMap::new();
        (0..24_000).for_each(|epoch| *counts.entry(permutation(9, epoch, 4)).or_insert(0) += 1);
        let chi_squared: f64 = counts
            .values()
            .map(|&c: &i32| f64::from(c - 1000).powi(2) / 1000.0)
            .sum();
        assert!(
            counts.len() == 24 && chi_squared < 49.7,
            "{} orders, {chi_squared}",
            counts.len()
        );
    }
}
