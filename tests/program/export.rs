//! `export`: networks for inference, in Dingo's two formats.

use crate::common::{self, Ended};
use crate::dingo;
use crate::workplace::{case, in_repository, parameters, program, Workplace, COMPLETE, STOPPED};
use dingo_spmd::checkpoint::Checkpoint;
use std::path::Path;

fn export(checkpoint: &Path, out: &Path, more: &[&str]) -> Ended {
    let mut command = program(1);
    command.arg("export").arg(checkpoint).arg(out).args(more);
    common::run(command)
}

#[test]
fn a_pt_keeps_the_network_and_leaves_training_out() {
    let workplace = Workplace::toy().with("local.runtime_limits", "{max_epochs_per_run: 1}");
    workplace.run_to(STOPPED, 1);
    for checkpoint in [workplace.latest(), case("npe").join("model_trained.pt")] {
        let out = workplace.path("exported.pt");
        export(&checkpoint, &out, &[]).assert_status(COMPLETE);
        let (before, after) = (Checkpoint::load(&checkpoint).unwrap(), Checkpoint::load(&out).unwrap());
        assert!(after.training.is_none());
        assert_eq!(before.metadata.train_settings, after.metadata.train_settings);
        assert_eq!((before.epoch, before.version), (after.epoch, after.version));
        assert!(parameters(&checkpoint) == parameters(&out));
        let size = |path: &Path| std::fs::metadata(path).unwrap().len();
        assert!(size(&out) < size(&checkpoint));
        assert_eq!(before.spmd.is_some(), after.spmd.is_some());
    }
}

#[test]
fn what_cannot_be_exported_is_refused_and_nothing_written() {
    let folder = tempfile::tempdir().unwrap();
    let trained = case("toy").join("model_trained.pt");
    let nothing_is_written = || assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    export(&trained, &folder.path().join("model.h5"), &[]).assert_refused(&["model.h5", ".pt or .hdf5"]);
    export(&case("toy").join("asds.hdf5"), &folder.path().join("a.pt"), &[]).assert_refused(&["asds.hdf5"]);
    export(&folder.path().join("no.pt"), &folder.path().join("a.hdf5"), &[]).assert_refused(&["no.pt"]);
    let nowhere = export(&trained, &folder.path().join("nowhere/a.hdf5"), &[]);
    nowhere.assert_status(1);
    nowhere.assert_error(&["nowhere/a.hdf5"]);
    nothing_is_written();
}

/// Files of both origins: the same as Dingo's own tool makes, and Dingo's network computes the same from it.
#[test]
fn an_hdf5_is_that_of_dingos_tool() {
    let Some(python) = dingo::python() else {
        return;
    };
    let workplace = Workplace::npe().with("local.runtime_limits", "{max_epochs_per_run: 1}");
    workplace.run_to(STOPPED, 1);
    let ours = |name: &str| workplace.path(name);
    let cases = [
        ("npe", workplace.latest()),
        ("npe", case("npe").join("model_trained.pt")),
        ("toy", case("toy").join("model_init.pt")),
    ];
    for (name, checkpoint) in cases {
        let out = ours("model.hdf5");
        export(&checkpoint, &out, &["--model-version-number", "3"]).assert_status(COMPLETE);
        let mut command = python();
        command.arg(in_repository("tests/program/check_export_with_dingo.py"));
        command.arg(&checkpoint).arg(ours("model_v3.hdf5")).arg(ours("dingos"));
        command.arg(case(name).join("network.npz"));
        let ended = common::run(command);
        ended.assert_status(0);
        ended.assert_says("the same as Dingo's");
    }
}
