//! `check`: what would be refused is refused (each test of bad settings, data and checkpoints asks `check` too), and what a
//! run would do is foreseen.

use crate::common;
use crate::workplace::{case, check, program, Workplace, COMPLETE, STOPPED};
use hdf5_metno::File;
use num_complex::Complex64;
use std::path::Path;
use std::time::Duration;

/// What stands behind `name:` on the page, at its first place after `section`.
#[track_caller]
fn field<'a>(page: &'a str, section: &str, name: &str) -> &'a str {
    let (_, after) = page
        .split_once(section)
        .unwrap_or_else(|| panic!("{section} is not in {page}"));
    let line = after
        .lines()
        .map(str::trim_start)
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap_or_else(|| panic!("{name} is not in {after}")).trim()
}

/// A size as it is printed, in bytes.
fn in_bytes(size: &str) -> f64 {
    let (number, unit) = size.split_once(' ').expect("a number and a unit");
    let factor = match unit {
        "kB" => 1e3,
        "MB" => 1e6,
        "GB" => 1e9,
        other => panic!("{other}"),
    };
    number.parse::<f64>().expect("a number") * factor
}

#[test]
fn a_new_run_is_foreseen() {
    let workplace = Workplace::toy().with("local.checkpoint_epochs", "2");
    let checked = workplace.check(2);
    checked.assert_status(COMPLETE);
    assert!(checked.took < Duration::from_secs(5), "{:?}", checked.took);
    assert!(!workplace.train_dir().exists());
    let page = &checked.stdout;
    assert_eq!(field(page, "run.yaml", "ranks"), "2");
    assert_eq!(field(page, "run.yaml", "begins"), "a new run");
    assert_eq!(field(page, "Data", "samples"), "240: 228 to train on, 12 to test");
    assert_eq!(field(page, "stage 0", "batch size"), "64, 32 on each rank");
    assert_eq!(field(page, "stage 0", "steps"), "4 per epoch, 8 in all");
    assert_eq!(
        field(page, "stage 0", "optimizer").split_once(';').unwrap().0,
        "adagrad, lr 0.001"
    );
    // Two of the stages' ends, and epoch 2.
    assert_eq!(field(page, "Disk", "kept"), "3 checkpoints");

    // The run does what was said.
    let ended = workplace.run_to(COMPLETE, 2);
    let learnable = field(page, "stage 1", "trains")
        .split_once(' ')
        .unwrap()
        .0
        .replace(',', "");
    ended.assert_says(&format!("Number of learnable parameters: {learnable}"));
    let actual = std::fs::metadata(workplace.latest()).unwrap().len() as f64;
    let foreseen = in_bytes(field(page, "Disk", "checkpoint"));
    assert!(
        (foreseen / actual - 1.0).abs() < 0.05,
        "{foreseen} foreseen, {actual} bytes are there"
    );
}

/// Adam has two tensors a parameter; the last stage, which freezes nothing, has the largest checkpoint.
#[test]
fn the_size_of_a_checkpoint_is_foreseen() {
    let workplace = Workplace::npe();
    let checked = workplace.check(1);
    workplace.run_to(COMPLETE, 1);
    let actual = std::fs::metadata(workplace.latest()).unwrap().len() as f64;
    let foreseen = in_bytes(field(&checked.stdout, "Disk", "checkpoint"));
    assert!(
        (foreseen / actual - 1.0).abs() < 0.05,
        "{foreseen} foreseen, {actual} bytes are there"
    );
}

#[test]
fn a_resumed_run_is_foreseen() {
    let workplace = Workplace::toy().with("local.runtime_limits", "{max_epochs_per_run: 1}");
    let begins = || {
        let checked = workplace.check(1);
        checked.assert_status(COMPLETE);
        field(&checked.stdout, "run.yaml", "begins").to_owned()
    };
    workplace.run_to(STOPPED, 1);
    let latest = workplace.latest().display().to_string();
    let from = format!("from {latest}, after epoch 1 and 4 optimizer steps, in stage 0 after 1 epoch");
    assert_eq!(begins(), from);
    workplace.run_to(STOPPED, 1);
    assert!(begins().ends_with("after epoch 2 and 8 optimizer steps, at the beginning of stage 1"));
    let files = workplace.files();
    workplace.run_to(COMPLETE, 1);
    let complete = workplace.check(1);
    complete.assert_status(COMPLETE);
    complete.assert_says("nothing: all stages are complete");
    assert_ne!(files, workplace.files(), "the last stage has ended");
}

#[test]
fn a_checkpoint_of_dingos_is_looked_at() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = check(2);
    command.current_dir(case("npe")).arg("train_settings.yaml");
    command.args(["--checkpoint", "model_trained.pt", "--train-dir"]);
    command.arg(folder.path().join("run"));
    let checked = common::run(command);
    checked.assert_status(COMPLETE);
    checked.assert_says("from model_trained.pt, after epoch 1 and 4 optimizer steps, in stage 0 after 1 epoch");
    assert!(!folder.path().join("run").exists());
}

#[test]
fn the_number_of_ranks_is_that_of_num_gpus() {
    let workplace = Workplace::toy().with("local.num_gpus", "4");
    workplace.write_settings();
    let mut command = program(1);
    command.arg("check").arg(workplace.settings_file());
    let checked = common::run(command);
    checked.assert_status(COMPLETE);
    assert_eq!(field(&checked.stdout, "run.yaml", "ranks"), "4");
    workplace
        .check(2)
        .assert_says("local.num_gpus is 4, but 2 ranks are checked");
    workplace
        .with("local.num_gpus", "5")
        .write_settings_and_refuse(&["batch_size: found 64, but 5 ranks"]);
}

impl Workplace {
    /// `check` without a number of ranks refuses the settings.
    fn write_settings_and_refuse(&self, parts: &[&str]) {
        self.write_settings();
        let mut command = program(1);
        command.arg("check").arg(self.settings_file());
        common::run(command).assert_refused(parts);
    }
}

/// A hundred million epochs, and all of them kept.
#[test]
fn checkpoints_that_will_not_fit_are_refused() {
    let workplace = Workplace::toy()
        .with("training.stage_1.epochs", "100000000")
        .with("local.checkpoint_epochs", "1");
    let parts = [
        "run: its checkpoints will take",
        "100000004 that are kept",
        "local.checkpoint_epochs",
        "are free",
    ];
    workplace.check(1).assert_refused(&parts);
    let limited = workplace.with("local.runtime_limits", "{max_epochs_total: 3}");
    limited.check(1).assert_status(COMPLETE);
}

/// The waveforms are read by each rank; `check` reads none of them whole.
#[test]
fn waveforms_in_chunks_are_pointed_out() {
    let mut workplace = Workplace::toy();
    let path = workplace.copy_file_of("data.waveform_dataset_path");
    put_into_chunks(&path, "polarizations/h_plus");
    let checked = workplace.check(1);
    checked.assert_status(COMPLETE);
    checked.assert_says("each rank reads all of them into memory");
}

/// Writes a dataset of case `toy` anew, in chunks of 16 samples.
fn put_into_chunks(path: &Path, key: &str) {
    let file = File::open_rw(path).unwrap();
    let values = file.dataset(key).unwrap().read_raw::<Complex64>().unwrap();
    file.unlink(key).unwrap();
    {
        let dataset = file.new_dataset::<Complex64>().chunk([16, 513]).shape([240, 513]);
        dataset.create(key).unwrap().write_raw(&values).unwrap();
    }
    file.close().unwrap();
}
