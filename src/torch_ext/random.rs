//! Counter-based random numbers: the Rust face of `kernels/philox.h`.

use super::simd::Level;

/// A sequence of Philox4x32-10 blocks: all that share a key and three of the counter's four words. The remaining word is
/// the block's position, so that any block can be had without those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct RandomStream {
    pub key: [u32; 2],
    pub counter: [u32; 3],
}

extern "C" {
    fn dingo_philox_words(stream: *const RandomStream, position: u32, words: *mut u32, blocks: u64);
    fn dingo_philox_noise(level: i32, stream: *const RandomStream, real: *mut f32, imaginary: *mut f32, bins: u64);
}

impl RandomStream {
    /// The block at `position`.
    pub fn block(&self, position: u32) -> [u32; 4] {
        let mut words = [0; 4];
        // SAFETY: room for the one block that is asked for.
        unsafe { dingo_philox_words(self, position, words.as_mut_ptr(), 1) };
        words
    }

    /// The blocks from `position` on, as many as fit into `blocks`.
    pub fn blocks(&self, position: u32, blocks: &mut [[u32; 4]]) {
        // SAFETY: `blocks` is contiguous memory for four words each.
        unsafe { dingo_philox_words(self, position, blocks.as_mut_ptr().cast(), blocks.len() as u64) };
    }

    /// White noise: independent standard normal deviates for the real and imaginary parts of complex bins. It is what
    /// [`network_inputs`](super::strain::network_inputs) adds to the same bins.
    ///
    /// Panics if the two differ in length.
    pub fn noise(&self, real: &mut [f32], imaginary: &mut [f32]) {
        self.noise_at_level(Level::detected(), real, imaginary);
    }

    pub(super) fn noise_at_level(&self, level: Level, real: &mut [f32], imaginary: &mut [f32]) {
        assert_eq!(real.len(), imaginary.len(), "real and imaginary parts of the same bins");
        // SAFETY: both hold that many numbers, and `level` is one the processor has.
        unsafe {
            dingo_philox_noise(
                level as i32,
                self,
                real.as_mut_ptr(),
                imaginary.as_mut_ptr(),
                real.len() as u64,
            )
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: RandomStream = RandomStream {
        key: [7, 11],
        counter: [1, 2, 3],
    };

    /// The known answers that Random123 ships for philox4x32-10 (kat_vectors).
    #[test]
    fn philox_known_answers() {
        let cases = [
            ([0; 2], [0; 4], [0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8]),
            (
                [u32::MAX; 2],
                [u32::MAX; 4],
                [0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd],
            ),
            (
                [0xa4093822, 0x299f31d0],
                [0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344],
                [0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1],
            ),
        ];
        for (key, [position, counter @ ..], expected) in cases {
            assert_eq!(RandomStream { key, counter }.block(position), expected);
        }
    }

    #[test]
    fn blocks_are_those_of_their_positions() {
        let mut blocks = [[0; 4]; 37];
        STREAM.blocks(u32::MAX - 5, &mut blocks);
        for (i, block) in blocks.iter().enumerate() {
            assert_eq!(*block, STREAM.block((u32::MAX - 5).wrapping_add(i as u32)));
        }
    }

    fn noise(level: Level, bins: usize) -> (Vec<f32>, Vec<f32>) {
        let (mut real, mut imaginary) = (vec![0.0; bins], vec![0.0; bins]);
        STREAM.noise_at_level(level, &mut real, &mut imaginary);
        (real, imaginary)
    }

    /// A bin's noise depends neither on the instruction set nor on how many bins there are.
    #[test]
    fn noise_is_the_same_everywhere() {
        let (real, imaginary) = noise(Level::Baseline, 5001);
        for level in Level::available() {
            let (other_real, other_imaginary) = noise(level, 5001);
            let same = |a: &[f32], b: &[f32]| a.iter().zip(b).all(|(x, y)| x.to_bits() == y.to_bits());
            assert!(
                same(&real, &other_real) && same(&imaginary, &other_imaginary),
                "{level:?}"
            );
            let (short, _) = noise(level, 77);
            assert!(same(&real[..77], &short), "{level:?}");
        }
    }

    /// Box and Muller's transform in double precision on the same words.
    #[test]
    fn noise_is_accurate() {
        let (real, imaginary) = noise(Level::detected(), 64);
        for lane in 0..32 {
            let words = STREAM.block(lane as u32).map(f64::from);
            for (bin, radius, angle) in [(lane, words[0], words[1]), (lane + 32, words[2], words[3])] {
                let radius = (-2.0 * ((radius + 0.5) / 2f64.powi(32)).ln()).sqrt();
                let (sine, cosine) = (std::f64::consts::TAU * angle / 2f64.powi(32)).sin_cos();
                assert!((f64::from(real[bin]) - radius * cosine).abs() < 2e-6);
                assert!((f64::from(imaginary[bin]) - radius * sine).abs() < 2e-6);
            }
        }
    }

    /// The complementary error function's tail: P(|z| > x), by numerical integration of the density.
    fn two_sided_tail(x: f64) -> f64 {
        let (steps, width) = (20_000, 12.0);
        let density = |z: f64| (-0.5 * z * z).exp() / std::f64::consts::TAU.sqrt();
        let h = width / f64::from(steps);
        2.0 * h * (0..steps).map(|i| density(x + (f64::from(i) + 0.5) * h)).sum::<f64>()
    }

    /// Moments, tails and the Kolmogorov-Smirnov distance of four million deviates, each within five standard errors.
    #[test]
    fn noise_is_standard_normal() {
        let (real, imaginary) = noise(Level::detected(), 2_000_000);
        let mut z: Vec<f64> = real.iter().chain(&imaginary).map(|&x| f64::from(x)).collect();
        let n = z.len() as f64;
        let moment = |k: i32| z.iter().map(|x| x.powi(k)).sum::<f64>() / n;
        // The k-th moment of a standard normal, and the variance of its estimate.
        for (k, expected, variance) in [
            (1, 0.0, 1.0),
            (2, 1.0, 2.0),
            (3, 0.0, 15.0),
            (4, 3.0, 96.0),
            (6, 15.0, 10170.0),
        ] {
            let deviation = (moment(k) - expected) / f64::sqrt(variance / n);
            assert!(
                deviation.abs() < 5.0,
                "moment {k}: {} ({deviation} standard errors)",
                moment(k)
            );
        }
        let correlation = real
            .iter()
            .zip(&imaginary)
            .map(|(&a, &b)| f64::from(a) * f64::from(b))
            .sum::<f64>();
        assert!((correlation / (n / 2.0).sqrt()).abs() < 5.0);
        let neighbours = real.windows(2).map(|w| f64::from(w[0]) * f64::from(w[1])).sum::<f64>();
        assert!((neighbours / (n / 2.0).sqrt()).abs() < 5.0);
        for x in [1.0, 2.0, 3.0, 4.0, 4.5] {
            let expected = n * two_sided_tail(x);
            let found = z.iter().filter(|v| v.abs() > x).count() as f64;
            assert!(
                (found - expected).abs() < 5.0 * expected.sqrt(),
                "beyond {x}: {found}, expected {expected}"
            );
        }

        // The distribution function on a fine grid, integrated once (trapezoids), against the empirical one.
        z.sort_by(f64::total_cmp);
        let density = |z: f64| (-0.5 * z * z).exp() / std::f64::consts::TAU.sqrt();
        let (h, mut cdf, mut below, mut distance) = (1e-3, two_sided_tail(6.0) / 2.0, 0, 0f64);
        for i in 0..12_000 {
            let x = -6.0 + h * f64::from(i);
            while below < z.len() && z[below] <= x {
                below += 1;
            }
            distance = distance.max((below as f64 / n - cdf).abs());
            cdf += h * 0.5 * (density(x) + density(x + h));
        }
        // The 0.1% point of Kolmogorov's distribution is 1.95.
        assert!(
            distance * n.sqrt() < 1.95,
            "Kolmogorov-Smirnov: {}",
            distance * n.sqrt()
        );
    }
}
