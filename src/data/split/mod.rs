//! Which samples train and which test: the split that Dingo makes.

mod mersenne_twister;

pub(super) use mersenne_twister::MersenneTwister;

/// The seed Dingo splits with, whatever the seed of the training.
const SPLIT_SEED: u32 = 42;

/// From this many elements on PyTorch draws 64-bit numbers, so that the modulus stays unbiased.
const SMALL_PERMUTATION: usize = u32::MAX as usize / 20;

/// Indices of the samples in the dataset, in PyTorch's order.
#[derive(Debug, Clone, PartialEq)]
pub struct TrainTestSplit {
    pub train: Vec<usize>,
    pub test: Vec<usize>,
}

/// Splits `count` samples into `int(train_fraction * count)` for training and the rest for testing.
///
/// The indices are those of `torch.utils.data.random_split` with a generator seeded with 42
/// (`split_dataset_into_train_and_test` in Dingo).
pub fn train_test_split(count: usize, train_fraction: f64) -> TrainTestSplit {
    let mut train = random_permutation(count, SPLIT_SEED);
    let train_count = (train_fraction * count as f64) as usize;
    let test = train.split_off(train_count.min(count));
    TrainTestSplit { train, test }
}

/// `torch.randperm(count, generator=torch.Generator().manual_seed(seed))` on the CPU.
fn random_permutation(count: usize, seed: u32) -> Vec<usize> {
    let mut generator = MersenneTwister::new(seed);
    let mut permutation: Vec<usize> = (0..count).collect();
    if count < SMALL_PERMUTATION {
        for i in 0..count.saturating_sub(1) {
            let other = i + generator.next_u32() as usize % (count - i);
            permutation.swap(i, other);
        }
    } else {
        for i in 0..count {
            let other = (generator.next_u64() % (i as u64 + 1)) as usize;
            permutation.swap(i, other);
        }
    }
    permutation
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sum of position times value, wrapping: a checksum that order changes.
    fn checksum(permutation: &[usize]) -> u64 {
        permutation.iter().enumerate().fold(0u64, |sum, (i, &value)| {
            sum.wrapping_add((i as u64 + 1).wrapping_mul(value as u64 + 1))
        })
    }

    #[test]
    fn permutes_as_torch_does() {
        assert_eq!(random_permutation(10, 42), [2, 6, 1, 8, 4, 5, 0, 9, 3, 7]);
        assert_eq!(checksum(&random_permutation(5_000_000, 42)), 12_803_569_979_305_884_754);
    }

    #[test]
    fn handles_the_smallest_counts() {
        assert_eq!(random_permutation(0, 42), Vec::<usize>::new());
        assert_eq!(random_permutation(1, 42), [0]);
        assert_eq!(train_test_split(3, 0.5).train.len(), 1);
        assert_eq!(train_test_split(3, 1.0).test.len(), 0);
    }
}
