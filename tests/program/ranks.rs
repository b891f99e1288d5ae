//! How many ranks train is a matter of speed alone.

use crate::common::Ended;
use crate::workplace::{Row, Workplace, COMPLETE};

/// Relative, of a loss.
const TOLERANCE: f64 = 1e-4;

#[track_caller]
fn assert_same_history(here: &[Row], there: &[Row]) {
    assert_eq!(here.len(), there.len());
    for (here, there) in here.iter().zip(there) {
        assert_eq!((here.epoch, here.lr), (there.epoch, there.lr));
        for (here, there) in [(here.train_loss, there.train_loss), (here.test_loss, there.test_loss)] {
            assert!(here.is_finite());
            assert!((here - there).abs() <= TOLERANCE * there.abs(), "{here}, not {there}");
        }
    }
}

/// The history on one rank, then the same on each of `numbers`.
fn same_on(numbers: &[usize], workplace: impl Fn() -> Workplace) {
    let alone = workplace();
    alone.run_to(COMPLETE, 1);
    for &ranks in numbers {
        let together = workplace();
        together.run_to(COMPLETE, ranks);
        assert_same_history(&together.history(), &alone.history());
    }
}

#[test]
fn without_normalization() {
    same_on(&[2, 4], Workplace::toy);
}

#[test]
fn with_synchronized_batch_normalization() {
    same_on(&[2], Workplace::toy_with_batch_norm);
}

/// 225 samples in batches of 32: the last batch has one, and with three ranks two of them have none.
#[test]
fn with_a_last_batch_smaller_than_the_number_of_ranks() {
    let in_batches_of_32 = |workplace: Workplace| {
        workplace
            .with("training.stage_0.batch_size", "32")
            .with("training.stage_1.batch_size", "32")
    };
    same_on(&[4], || {
        in_batches_of_32(Workplace::toy()).with("data.train_fraction", "0.94")
    });
    // BatchNorm needs two samples: 226.
    same_on(&[4], || {
        in_batches_of_32(Workplace::toy_with_batch_norm()).with("data.train_fraction", "0.9421")
    });
}

#[test]
fn a_number_of_gpus_that_differs_is_reported_once() {
    let report = |workplace: Workplace, ranks: usize| -> Ended { workplace.run_to(COMPLETE, ranks) };
    let differs = report(Workplace::toy().with("local.num_gpus", "4"), 2);
    assert_eq!(
        differs.stdout.matches("local.num_gpus is 4").count(),
        1,
        "{}",
        differs.output()
    );
    let outdated = report(Workplace::toy().with("local.condor", "{num_gpus: 2}"), 2);
    assert_eq!(
        outdated.stdout.matches("deprecated").count(),
        1,
        "{}",
        outdated.output()
    );
    assert!(!outdated.stdout.contains("num_gpus is 2"), "{}", outdated.output());
}
