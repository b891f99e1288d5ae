//! Initial values of parameters: PyTorch's distributions, from a generator of our own.
//!
//! `tch` exposes no generator object, and its global one would make the weights depend on the device and on whatever was
//! drawn before. Here every tensor has a SplitMix64 stream of its own, seeded from the run's seed and the tensor's name: the
//! same on every rank and device, and unchanged by layers that are added elsewhere.

use tch::{Device, Kind, TchError, Tensor};

/// How a parameter starts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Init {
    Constant(f64),
    /// Uniform on `[low, high)`.
    Uniform {
        low: f64,
        high: f64,
    },
}

impl Init {
    /// Uniform on `[-bound, bound)`.
    pub fn symmetric(bound: f64) -> Self {
        Init::Uniform {
            low: -bound,
            high: bound,
        }
    }

    /// The default of `torch.nn.Linear` for weight and bias alike: uniform within 1/√fan_in (for the weight PyTorch
    /// calls it Kaiming with a = √5).
    pub fn linear(fan_in: usize) -> Self {
        Init::symmetric(if fan_in == 0 { 0.0 } else { 1.0 / (fan_in as f64).sqrt() })
    }

    /// A float32 tensor of `shape` on `device`.
    pub fn tensor(self, shape: &[i64], mut generator: SplitMix64, device: Device) -> Result<Tensor, TchError> {
        match self {
            Init::Constant(value) => Tensor::f_full(shape, value, (Kind::Float, device)),
            Init::Uniform { low, high } => {
                let count = shape.iter().product::<i64>() as usize;
                let values: Vec<f32> = (0..count)
                    .map(|_| (low + (high - low) * generator.next_unit()) as f32)
                    .collect();
                Tensor::f_from_slice(&values)?.f_reshape(shape)?.f_to_device(device)
            }
        }
    }
}

/// SplitMix64 (Steele, Lea and Flood 2014, doi:10.1145/2660193.2660195).
#[derive(Debug, Clone)]
pub struct SplitMix64 {
    state: u64,
}

impl SplitMix64 {
    /// The stream of the tensor `name` in a run with `seed`.
    pub fn for_tensor(seed: u64, name: &str) -> Self {
        // FNV-1a tells the names apart; the first output then mixes seed and name.
        let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325u64, |h, b| {
            (h ^ b as u64).wrapping_mul(0x100_0000_01b3)
        });
        let mut generator = SplitMix64 { state: seed };
        generator.state = generator.next_u64() ^ hash;
        generator
    }

    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform on `[0, 1)` in steps of 2^-24, float32's, as `torch.rand` draws.
    pub fn next_unit(&mut self) -> f64 {
        (self.next_u64() >> 40) as f64 / (1u64 << 24) as f64
    }

    /// A uniformly drawn order of `0..n` (Fisher-Yates).
    pub fn permutation(&mut self, n: usize) -> Vec<i64> {
        let mut order: Vec<i64> = (0..n as i64).collect();
        for i in (1..n).rev() {
            let j = ((self.next_u64() as u128 * (i as u128 + 1)) >> 64) as usize;
            order.swap(i, j);
        }
        order
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uniform_fills_its_interval_evenly() {
        let draws = Init::Uniform { low: -0.5, high: 1.5 };
        let x = draws
            .tensor(&[400, 250], SplitMix64::for_tensor(1, "weight"), Device::Cpu)
            .unwrap();
        let (low, high) = (x.min().double_value(&[]), x.max().double_value(&[]));
        assert!(
            (-0.5..-0.499).contains(&low) && (1.499..1.5).contains(&high),
            "{low} {high}"
        );
        // 1e5 draws: the mean's standard error is 2 / sqrt(12e5) = 1.8e-3, that of the variance (1/3) 9.4e-4.
        let mean = x.mean(Kind::Float).double_value(&[]);
        let variance = x.var(true).double_value(&[]);
        assert!((mean - 0.5).abs() < 8e-3, "{mean}");
        assert!((variance - 1.0 / 3.0).abs() < 4e-3, "{variance}");
    }

    #[test]
    fn streams_depend_on_seed_and_name_only() {
        let first = |seed, name| SplitMix64::for_tensor(seed, name).next_u64();
        assert_eq!(first(3, "a.weight"), first(3, "a.weight"));
        assert_ne!(first(3, "a.weight"), first(4, "a.weight"));
        assert_ne!(first(3, "a.weight"), first(3, "b.weight"));
    }

    #[test]
    fn permutations_are_permutations_and_each_place_gets_each_element() {
        let mut seen = [[0u32; 5]; 5];
        for seed in 0..5000 {
            let order = SplitMix64::for_tensor(seed, "_permutation").permutation(5);
            let mut sorted = order.clone();
            sorted.sort();
            assert_eq!(sorted, [0, 1, 2, 3, 4]);
            order
                .iter()
                .enumerate()
                .for_each(|(place, &element)| seen[place][element as usize] += 1);
        }
        // Binomial(5000, 1/5): mean 1000, standard deviation 28.
        assert!(seen.iter().flatten().all(|&n| (860..1140).contains(&n)), "{seen:?}");
    }
}
