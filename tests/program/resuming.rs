//! Runs that stop and go on.

use crate::common;
use crate::workplace::{case, check, history, parameters, program, Workplace, BAD_INPUT, COMPLETE, STOPPED};
use dingo_spmd::checkpoint::Checkpoint;
use std::time::Duration;

/// A run of one epoch at a time.
fn one_epoch_a_run() -> Workplace {
    Workplace::toy().with("local.runtime_limits", "{max_epochs_per_run: 1}")
}

#[test]
fn the_same_command_goes_on_and_ends_where_one_run_would() {
    for ranks in [1, 2] {
        let whole = Workplace::toy_with_batch_norm();
        whole.run_to(COMPLETE, ranks);
        let pieces = Workplace::toy_with_batch_norm().with("local.runtime_limits", "{max_epochs_per_run: 1}");
        for (epoch, status) in [(1, STOPPED), (2, STOPPED), (3, COMPLETE)] {
            pieces.run_to(status, ranks);
            assert_eq!(pieces.history(), whole.history()[..epoch]);
            assert_eq!(Checkpoint::load(pieces.latest()).unwrap().epoch, epoch as u64);
        }
        assert!(parameters(&pieces.latest()) == parameters(&whole.latest()));
        assert_eq!(pieces.files(), whole.files());
    }
}

#[test]
fn a_time_limit_stops_a_run_with_its_checkpoint() {
    let workplace = Workplace::toy().with("local.runtime_limits", "{max_time_per_run: 0.000001}");
    let ended = workplace.run(2);
    ended.assert_status(STOPPED);
    ended.assert_says("Stop run: Time limit of 0.000001 s exceeded.");
}

#[test]
fn the_settings_file_may_be_left_out() {
    let workplace = one_epoch_a_run();
    workplace.run_to(STOPPED, 1);
    std::fs::remove_file(workplace.settings_file()).unwrap();
    for status in [STOPPED, COMPLETE] {
        let mut command = program(1);
        command.arg("--train-dir").arg(workplace.train_dir());
        common::run(command).assert_status(status);
    }
    assert_eq!(workplace.history().len(), 3);
}

#[test]
fn what_was_trained_with_must_stay() {
    let begun = one_epoch_a_run();
    begun.run_to(STOPPED, 1);
    for (ranks, key, yaml, parts) in [
        (1, "data.train_fraction", "0.9", ["0.9", "0.95"]),
        (
            1,
            "data.inference_parameters",
            "[chirp_mass]",
            ["chirp_mass", "mass_ratio"],
        ),
        (1, "data.zero_noise", "true", ["true", "absent"]),
        (1, "model.posterior_kwargs.num_flow_steps", "5", ["5", "4"]),
        (1, "training.stage_0.batch_size", "32", ["32", "64"]),
        (1, "training.stage_0.epochs", "7", ["7", "2"]),
        (2, "training.stage_0.optimizer.lr", "0.5", ["0.5", "0.001"]),
    ] {
        let mut changed = Workplace::toy();
        changed.set(key, yaml);
        changed.write_settings();
        std::fs::copy(changed.settings_file(), begun.path("changed.yaml")).unwrap();
        for mut command in [program(ranks), check(ranks)] {
            command
                .arg(begun.path("changed.yaml"))
                .arg("--train-dir")
                .arg(begun.train_dir());
            let ended = common::run(command);
            ended.assert_refused(&[key, "model_latest.pt", "--train-dir"]);
            ended.assert_refused(&parts);
        }
    }
    assert_eq!(begun.history().len(), 1);
}

#[test]
fn local_settings_and_later_stages_may_change() {
    let mut workplace = one_epoch_a_run();
    workplace.run_to(STOPPED, 1);
    workplace.set("local.checkpoint_epochs", "7");
    workplace.set("training.stage_1.epochs", "2");
    workplace.set("training.stage_1.optimizer", "{type: sgd, lr: 0.25}");
    let ended = workplace.run(2);
    ended.assert_status(STOPPED);
    // The train dir's own local settings count, and the user is told so once.
    assert_eq!(
        ended.stdout.matches("local.checkpoint_epochs is 7").count(),
        1,
        "{}",
        ended.output()
    );
    assert!(workplace.train_dir().join("model_002.pt").exists());
    workplace.run_to(STOPPED, 1);
    workplace.run_to(COMPLETE, 1);
    let rates: Vec<f64> = workplace.history().iter().map(|row| row.lr).collect();
    // The second stage's cosine falls to zero in its one step.
    assert_eq!(rates, [0.001, 0.0005, 0.25, 0.0]);
}

#[test]
fn a_checkpoint_from_elsewhere_is_continued_in_a_new_train_dir() {
    let origin = one_epoch_a_run();
    origin.run_to(STOPPED, 1);
    let checkpoint = origin.train_dir().join("model_001.pt");
    let here = Workplace::toy();
    let mut command = here.command(1);
    command.arg("--checkpoint").arg(&checkpoint);
    common::run(command).assert_status(COMPLETE);
    let epochs: Vec<u64> = here.history().iter().map(|row| row.epoch).collect();
    assert_eq!(epochs, [2, 3]);
    assert_eq!(origin.history().len(), 1, "the origin is left alone");

    // Without settings, there is nothing that says where the new run is to be computed.
    let mut command = program(1);
    command.arg("--checkpoint").arg(&checkpoint);
    command.arg("--train-dir").arg(here.path("third"));
    common::run(command).assert_refused(&["local_settings.yaml"]);
    assert!(!here.path("third").exists());

    // Its own folder has them.
    let mut command = program(1);
    command.arg("--checkpoint").arg(&checkpoint);
    common::run(command).assert_status(STOPPED);
    assert_eq!(origin.history()[1], here.history()[0]);
}

#[test]
fn a_finished_run_says_so_and_ends() {
    let workplace = Workplace::toy();
    workplace.run_to(COMPLETE, 1);
    let before = std::fs::metadata(workplace.latest()).unwrap().modified().unwrap();
    for ranks in [1, 2] {
        let ended = workplace.run_to(COMPLETE, ranks);
        ended.assert_says("All training stages complete.");
        ended.assert_says(workplace.latest().to_str().unwrap());
        assert!(ended.took < Duration::from_secs(10), "{:?}", ended.took);
        assert!(!ended.stdout.contains("Train Epoch"), "{}", ended.output());
    }
    assert_eq!(
        std::fs::metadata(workplace.latest()).unwrap().modified().unwrap(),
        before
    );
}

/// Dingo's checkpoint is in the middle of a stage of two epochs: optimizer and scheduler go on from it.
#[test]
fn a_run_of_dingos_is_continued() {
    for (name, rate, ranks) in [("toy", 0.0005, 1), ("npe", 0.00025, 2)] {
        let folder = tempfile::tempdir().unwrap();
        let mut command = program(ranks);
        // Its settings have paths relative to the case's folder.
        command.current_dir(case(name)).arg("train_settings.yaml");
        command
            .args(["--checkpoint", "model_trained.pt", "--train-dir"])
            .arg(folder.path());
        common::run(command).assert_status(COMPLETE);
        let history = history(folder.path());
        assert_eq!(history.iter().map(|row| row.epoch).collect::<Vec<_>>(), [2, 3]);
        assert_eq!(history[0].lr, rate);
        let before = Checkpoint::load(case(name).join("model_trained.pt")).unwrap();
        let after = Checkpoint::load(folder.path().join("model_stage_0.pt")).unwrap();
        assert_eq!(after.epoch, 2);
        assert!(after.iteration > before.iteration);
        assert_eq!(after.model_kwargs, before.model_kwargs);
        assert_eq!(after.metadata.train_settings, before.metadata.train_settings);
    }
}

#[test]
fn a_checkpoint_option_without_a_file_is_refused() {
    let workplace = Workplace::toy();
    let mut command = workplace.command(1);
    command.args(["--checkpoint", "nowhere/model_latest.pt"]);
    let ended = common::run(command);
    ended.assert_refused(&["nowhere/model_latest.pt", "No such file"]);
    assert_eq!(ended.status.code(), Some(BAD_INPUT));
    assert!(!workplace.train_dir().exists());
}
