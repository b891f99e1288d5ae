//! `inspect`, compared with `dingo_ls` on files of both origins.

use crate::common::{self, Ended};
use crate::dingo;
use crate::workplace::{case, in_repository, program, Workplace, COMPLETE, STOPPED};
use dingo_spmd::settings::{yaml, Value};
use std::path::{Path, PathBuf};

fn inspect(path: &Path, more: &[&str]) -> Ended {
    let mut command = program(1);
    command.arg("inspect").arg(path).args(more).env("PATH", "/nowhere");
    common::run(command)
}

/// The lines below a heading, up to the next one.
#[track_caller]
fn section<'a>(page: &'a str, heading: &str) -> &'a str {
    let start = page
        .find(&format!("\n{heading}\n--"))
        .unwrap_or_else(|| panic!("{heading} is not in {page}"));
    let body = page[start..].splitn(4, '\n').nth(3).unwrap_or_default();
    // A heading is a blank line, the name, and a line of dashes.
    let next = body.match_indices("\n\n").map(|(at, _)| at).find(|&at| {
        let mut lines = body[at + 2..].lines();
        lines.next().is_some() && lines.next().is_some_and(|line| line.starts_with("--"))
    });
    &body[..next.map_or(body.len(), |at| at + 1)]
}

fn tree(text: &str) -> Value {
    yaml::read(text).unwrap_or_else(|error| panic!("{error}: {text}")).value
}

#[test]
fn a_checkpoint_of_our_own() {
    let workplace = Workplace::toy().with("local.runtime_limits", "{max_epochs_per_run: 1}");
    workplace.run_to(STOPPED, 1);
    let ended = inspect(&workplace.latest(), &["--tensors"]);
    ended.assert_status(COMPLETE);
    for part in [
        "Version:          dingo=0.10.3",
        &format!("dingo-spmd:       {}", env!("CARGO_PKG_VERSION")),
        "Model epoch:      1",
        "Optimizer steps:  4",
        "embedding_net.",
        "[64]",
        "type: adagrad",
        "learning rate now: 0.0005",
    ] {
        ended.assert_says(part);
    }
    let spmd = tree(section(&ended.stdout, "Under spmd"));
    assert_eq!(spmd["progress"], tree("{stage: 0, epoch_in_stage: 1, batches: 0}"));
    assert_eq!(spmd["seed"], Value::from(1));
    let metadata = tree(section(&ended.stdout, "Model metadata"));
    assert_eq!(metadata["train_settings"]["data"]["detectors"], tree("[H1, L1]"));
    assert_eq!(metadata["dataset_settings"]["domain"]["delta_f"], Value::from(0.25));
}

#[test]
fn files_of_data() {
    let npe = inspect(&case("npe").join("waveform_dataset.hdf5"), &[]);
    npe.assert_status(COMPLETE);
    for part in [
        "waveform dataset of 4096 samples",
        "Dingo version:  dingo=0.10.3",
        "polarizations/h_plus   [4096, 64]  complex128",
        "n = 50",
        "Mean mismatch =",
    ] {
        npe.assert_says(part);
    }
    let asds = inspect(&case("npe").join("asds.hdf5"), &[]);
    asds.assert_says("ASD dataset (H1: 12, L1: 12)");
    let basis = inspect(&case("npe").join("svd_H1.hdf5"), &[]);
    basis.assert_says("SVD basis of size 12");
    basis.assert_says("n = 12");
}

/// A closed pipe is how `| head` ends; it is no error.
#[test]
fn a_reader_may_stop_early() {
    let command = format!(
        "{} inspect {} | head -n 1",
        env!("CARGO_BIN_EXE_dingo-spmd"),
        case("npe").join("model_init.pt").display()
    );
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", &command]);
    let ended = common::run(shell);
    assert!(ended.status.success() && ended.stderr.is_empty(), "{}", ended.output());
}

#[test]
fn what_cannot_be_inspected_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, contents: &[u8]| {
        let path = folder.path().join(name);
        std::fs::write(&path, contents).unwrap();
        path
    };
    inspect(&folder.path().join("no.pt"), &[]).assert_refused(&["no.pt", "No such file"]);
    inspect(folder.path(), &[]).assert_refused(&["directory"]);
    inspect(&file("text.txt", b"chirp_mass"), &[]).assert_refused(&["text.txt", "neither a checkpoint"]);
    inspect(&file("text.pt", b"weights"), &[]).assert_refused(&["text.pt", "not a whole PyTorch checkpoint"]);
    let cut = std::fs::read(case("npe").join("asds.hdf5")).unwrap();
    inspect(&file("cut.hdf5", &cut[..1000]), &[]).assert_refused(&["cut.hdf5", "truncated"]);
}

/// Cases that the program cannot train yet are described all the same.
fn dingos_files() -> Vec<PathBuf> {
    let more = std::env::var_os("DINGO_CASES").map(PathBuf::from);
    let folders = more
        .iter()
        .flat_map(|folder| std::fs::read_dir(folder).expect("DINGO_CASES is a folder"));
    let folders = folders
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.is_dir());
    let all = [case("toy"), case("npe")].into_iter().chain(folders);
    let files = all.flat_map(|folder| {
        ["model_trained.pt", "waveform_dataset.hdf5", "asds.hdf5", "svd_H1.hdf5"].map(|name| folder.join(name))
    });
    files.filter(|path| path.exists()).collect()
}

#[test]
fn dingo_ls_says_the_same() {
    let Some(python) = dingo::python() else {
        return;
    };
    let workplace = Workplace::npe().with("local.runtime_limits", "{max_epochs_per_run: 1}");
    workplace.run_to(STOPPED, 1);
    let our_files = [workplace.latest(), workplace.train_dir().join("svd_H1.hdf5")];
    let files: Vec<PathBuf> = dingos_files().into_iter().chain(our_files).collect();
    let mut command = python();
    command
        .arg(in_repository("tests/program/ls_with_dingo.py"))
        .args(&files);
    let listed = common::run(command);
    listed.assert_status(0);
    let pages: Vec<&str> = listed.stdout.split("=== the next file ===\n").skip(1).collect();
    assert_eq!(pages.len(), files.len());
    for (path, dingos) in files.iter().zip(pages) {
        println!("{}", path.display());
        let ours = inspect(path, &[]);
        ours.assert_status(COMPLETE);
        if path.extension().is_some_and(|extension| extension == "pt") {
            let (_, metadata) = dingos.split_once("Model metadata:\n").expect("metadata");
            assert_eq!(tree(section(&ours.stdout, "Model metadata")), tree(metadata));
        } else if let Some((_, settings)) = dingos.split_once("Settings\n--------\n") {
            let settings = settings.split("\n\nSVD").next().unwrap_or_default();
            assert_eq!(tree(section(&ours.stdout, "Settings")), tree(settings));
        }
        if let Some((_, mismatches)) = dingos.split_once("alidation summary:\n") {
            let mismatches = mismatches.trim_start_matches(['-', '\n']);
            same_numbers(section(&ours.stdout, "SVD validation summary"), mismatches);
        }
    }
}

/// The same lines, but for the last digits of sums.
#[track_caller]
fn same_numbers(ours: &str, dingos: &str) {
    assert_eq!(ours.lines().count(), dingos.lines().count(), "{ours}\n{dingos}");
    for (ours, dingos) in ours.lines().zip(dingos.lines()) {
        let number = |line: &str| line.rsplit(' ').next().and_then(|number| number.parse::<f64>().ok());
        match (number(ours), number(dingos)) {
            (Some(a), Some(b)) => assert!((a - b).abs() <= 1e-9 * b.abs(), "{ours} {dingos}"),
            _ => assert_eq!(ours, dingos),
        }
    }
}
