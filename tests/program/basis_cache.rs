//! The embedding's bases in the train dir: taken by a run that is begun again, if they fit.

use crate::workplace::{Workplace, STOPPED};
use std::fs;
use std::path::PathBuf;

const MADE: &str = "Mismatches on validation waveforms";
const KEPT: &str = "Using the SVD in";

/// A run of one epoch that leaves nothing but its bases, as one that is killed before its first checkpoint.
fn killed_early(workplace: &Workplace) -> PathBuf {
    for file in fs::read_dir(workplace.train_dir()).unwrap() {
        let path = file.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "hdf5") {
            fs::remove_file(path).unwrap();
        }
    }
    workplace.train_dir().join("svd_L1.hdf5")
}

fn short() -> Workplace {
    Workplace::toy().with("local.runtime_limits", "{max_epochs_per_run: 1}")
}

#[test]
fn a_run_that_is_begun_again_takes_the_bases_that_are_there() {
    let workplace = short().with("local.seed", "3");
    workplace.run_to(STOPPED, 2).assert_says(MADE);
    let first = workplace.history();
    let basis = fs::read(killed_early(&workplace)).unwrap();
    let again = workplace.run_to(STOPPED, 2);
    again.assert_says(KEPT);
    assert!(!again.output().contains(MADE), "{}", again.output());
    assert_eq!(fs::read(killed_early(&workplace)).unwrap(), basis);
    assert_eq!(fs::read_dir(workplace.train_dir()).unwrap().count(), 2);
    // On the same bases: what all ranks begin from is the same as before.
    workplace.run_to(STOPPED, 2);
    assert_eq!(workplace.history()[0].train_loss, first[0].train_loss);
}

#[test]
fn bases_of_something_else_are_made_again() {
    let mut workplace = short().with("local.seed", "null");
    workplace.run_to(STOPPED, 1).assert_says(MADE);
    killed_early(&workplace);
    // Which seed was drawn does not matter, one that is asked for does.
    workplace.run_to(STOPPED, 1).assert_says(KEPT);
    killed_early(&workplace);
    workplace.set("local.seed", "3");
    let other = workplace.run_to(STOPPED, 1);
    other.assert_says("was made from something else (\"seed: any\", here \"seed: 3\")");
    other.assert_says(MADE);

    let damaged = killed_early(&workplace);
    let length = fs::metadata(&damaged).unwrap().len();
    fs::File::options()
        .write(true)
        .open(&damaged)
        .unwrap()
        .set_len(length / 2)
        .unwrap();
    let mended = workplace.run_to(STOPPED, 1);
    mended.assert_says("The embedding's basis is made again");
    mended.assert_says(MADE);
}
