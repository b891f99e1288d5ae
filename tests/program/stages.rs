//! What a run leaves behind, and how its stages end.

use crate::common;
use crate::workplace::{Workplace, COMPLETE, STOPPED};
use dingo_spmd::checkpoint::Checkpoint;

#[test]
fn a_run_leaves_dingos_files() {
    let workplace = Workplace::toy().with("local.checkpoint_epochs", "2");
    let ended = workplace.run_to(COMPLETE, 2);
    assert_eq!(
        workplace.files(),
        [
            "history.txt",
            "local_settings.yaml",
            "model_002.pt",
            "model_latest.pt",
            "model_stage_0.pt",
            "model_stage_1.pt",
            "svd_H1.hdf5",
            "svd_L1.hdf5"
        ]
    );
    let rates: Vec<f64> = workplace.history().iter().map(|row| row.lr).collect();
    assert_eq!(rates, [0.001, 0.0005, 0.001]);
    // 228 samples in batches of 64 make four steps an epoch.
    let latest = Checkpoint::load(workplace.latest()).unwrap();
    assert_eq!((latest.epoch, latest.iteration), (3, 12));
    // Only rank 0 speaks.
    for line in [
        "Beginning new training run.",
        "All training stages complete.",
        "Train Epoch: 1 [64/228 (28%)]",
    ] {
        assert_eq!(ended.stdout.matches(line).count(), 1, "{line}: {}", ended.output());
    }
    ended.assert_says("Mismatches on validation waveforms");
    ended.assert_says("build_model_from_kwargs");
}

#[test]
fn the_exit_command_runs_once_and_only_at_the_end() {
    let workplace = Workplace::toy().with("local.runtime_limits", "{max_epochs_per_run: 2}");
    let report = workplace.path("report");
    for (status, lines) in [(STOPPED, 0), (COMPLETE, 1)] {
        let mut command = workplace.command(2);
        command
            .arg("--exit-command")
            .arg(format!("echo done >> '{}'; exit 3", report.display()));
        common::run(command).assert_status(status);
        let text = std::fs::read_to_string(&report).unwrap_or_default();
        assert_eq!(text.lines().count(), lines);
    }
}

#[test]
fn early_stopping_ends_a_stage() {
    let workplace = Workplace::toy()
        .with("training.stage_0.epochs", "30")
        // Nothing is as good as the first epoch plus a thousand.
        .with(
            "training.stage_0.early_stopping",
            "{patience: 2, delta: 1000.0, verbose: true}",
        );
    let ended = workplace.run_to(COMPLETE, 2);
    ended.assert_says("EarlyStopping counter: 2 out of 2");
    let epochs: Vec<u64> = workplace.history().iter().map(|row| row.epoch).collect();
    assert_eq!(
        epochs,
        [1, 2, 3, 4],
        "three epochs of the first stage, one of the second"
    );
    assert_eq!(workplace.history()[3].lr, 0.001, "a stage starts afresh");
    let best = Checkpoint::load(workplace.train_dir().join("best_model.pt")).unwrap();
    assert_eq!(best.epoch, 1);
    assert!(best.training.is_none());
    assert_eq!(
        Checkpoint::load(workplace.train_dir().join("model_stage_0.pt"))
            .unwrap()
            .epoch,
        3
    );
    // The checkpoint records that all is done, though epochs are missing.
    workplace
        .run_to(COMPLETE, 1)
        .assert_says("All training stages complete.");
    assert_eq!(workplace.history().len(), 4);
}

/// Its count goes on where it stood.
#[test]
fn early_stopping_survives_a_restart() {
    let stopping = "{patience: 2, delta: 1000.0}";
    let whole = || {
        Workplace::toy()
            .with("training.stage_0.epochs", "30")
            .with("training.stage_0.early_stopping", stopping)
    };
    let pieces = whole().with("local.runtime_limits", "{max_epochs_per_run: 1}");
    for status in [STOPPED, STOPPED, STOPPED, COMPLETE] {
        pieces.run_to(status, 1);
    }
    let whole = whole();
    whole.run_to(COMPLETE, 1);
    assert_eq!(pieces.history(), whole.history());
}

#[test]
fn test_only_reports_the_loss_and_trains_nothing() {
    let trained = Workplace::toy().with("local.runtime_limits", "{max_epochs_per_run: 1}");
    trained.run_to(STOPPED, 1);
    let checkpoint = trained.train_dir().join("model_001.pt");
    let workplace = Workplace::toy().with("local.test_only", "true");
    for ranks in [1, 2] {
        let mut command = workplace.command(ranks);
        command.arg("--checkpoint").arg(&checkpoint);
        let ended = common::run(command);
        ended.assert_status(COMPLETE);
        // The noise of an epoch's test is that of its number, so the loss is the recorded one.
        ended.assert_says(&format!("test loss: {:.3}", trained.history()[0].test_loss));
        assert!(!ended.stdout.contains("Train Epoch"), "{}", ended.output());
    }
    assert!(!workplace.train_dir().join("history.txt").exists());
    assert!(!workplace.latest().exists());
}
