//! The command line, and the train dir it names.

use crate::common::{self, Ended};
use crate::workplace::{check, program, Workplace, BAD_INPUT, COMPLETE};
use std::path::Path;
use std::process::Command;

/// The program with nothing in its environment: no mpirun on PATH, no MPI variables.
fn bare(arguments: &[&str]) -> Ended {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dingo-spmd"));
    command.args(arguments).env_clear().env("PATH", "/nowhere");
    common::run(command)
}

#[test]
fn help_and_version_need_no_mpi() {
    let help = bare(&["--help"]);
    help.assert_status(COMPLETE);
    for option in ["SETTINGS", "--train-dir", "--checkpoint", "--exit-command"] {
        help.assert_says(option);
    }
    let version = bare(&["--version"]);
    version.assert_status(COMPLETE);
    version.assert_says(env!("CARGO_PKG_VERSION"));
}

#[test]
fn a_wrong_command_line_is_refused() {
    for (arguments, part) in [
        (&["--train-dri", "x"][..], "--train-dir"),
        (&["a.yaml", "b.yaml"], "b.yaml"),
        (&[], "Usage"),
    ] {
        let ended = bare(arguments);
        ended.assert_status(BAD_INPUT);
        ended.assert_says(part);
    }
    let folder = tempfile::tempdir().unwrap();
    let mut nothing_to_resume = program(2);
    nothing_to_resume.arg("--train-dir").arg(folder.path());
    common::run(nothing_to_resume).assert_refused(&["model_latest.pt", &folder.path().display().to_string()]);
    let mut nameless = program(1);
    nameless.arg(folder.path().join("settings"));
    common::run(nameless).assert_refused(&["settings", "--train-dir"]);
}

#[test]
fn the_train_dir_is_beside_the_settings_file_and_paths_are_relative_to_the_working_directory() {
    let mut workplace = Workplace::toy();
    workplace.copy_file_of("data.waveform_dataset_path");
    workplace.set("data.waveform_dataset_path", "waveform_dataset.hdf5");
    let mut command = workplace.command(1);
    command.current_dir(workplace.path(""));
    common::run(command).assert_status(COMPLETE);
    assert_eq!(workplace.history().len(), 3);
}

/// A run that must not begin, told with the path of its train dir.
fn assert_train_dir_refused(workplace: &Workplace, ranks: usize, train_dir: &Path, part: &str) {
    let mut command = workplace.command(ranks);
    command.arg("--train-dir").arg(train_dir);
    let ended = common::run(command);
    ended.assert_refused(&[&train_dir.display().to_string(), part]);
    let mut command = check(ranks);
    command.arg(workplace.settings_file()).arg("--train-dir").arg(train_dir);
    common::run(command).assert_refused(&[&train_dir.display().to_string(), part]);
    assert!(
        !ended.stdout.contains("SVD"),
        "told only after a long preparation: {}",
        ended.output()
    );
}

#[test]
fn train_dirs_that_cannot_be() {
    let workplace = Workplace::toy();
    let file = workplace.path("taken");
    std::fs::write(&file, "a file").unwrap();
    assert_train_dir_refused(&workplace, 1, &file, "not a folder");
    assert_train_dir_refused(&workplace, 2, &file, "not a folder");
    assert_train_dir_refused(&workplace, 1, &file.join("run"), "ot a folder");
    // Where not even root may write.
    assert_train_dir_refused(&workplace, 1, Path::new("/proc/dingo-spmd/run"), "cannot");
    assert_eq!(std::fs::read(&file).unwrap(), b"a file");
}

/// Its checkpoint may have been moved elsewhere; its history must not be mixed with another's.
#[test]
fn a_train_dir_with_a_history_but_no_checkpoint_is_refused() {
    let workplace = Workplace::toy();
    std::fs::create_dir(workplace.train_dir()).unwrap();
    std::fs::write(workplace.train_dir().join("history.txt"), "1\t3.0\t3.1\t0.1\r\n").unwrap();
    workplace.check(1).assert_refused(&["history.txt", "--train-dir"]);
    workplace.run(1).assert_refused(&["history.txt", "--train-dir"]);
    assert_eq!(workplace.files(), ["history.txt"]);
}
