//! Settings that must be refused before anything is made.

use crate::common;
use crate::workplace::{check, program, Workplace};

/// A key, what stands there (nothing: the key is missing), parts of the message.
type Change = (&'static str, &'static str, &'static [&'static str]);

const ON_ONE_RANK: &[Change] = &[
    ("model", "", &["model: missing"]),
    ("data.detectors", "", &["data.detectors: missing"]),
    (
        "training.stage_0.epochs",
        "",
        &["training.stage_0.epochs: missing", "at least 1"],
    ),
    (
        "training.stage_0.epochs",
        "0",
        &["training.stage_0.epochs: found 0", "at least 1"],
    ),
    (
        "training.stage_1.batch_size",
        "many",
        &["training.stage_1.batch_size: found 'many'", "whole number"],
    ),
    (
        "local.checkpoint_epochs",
        "[1]",
        &["local.checkpoint_epochs: found [1]", "whole number"],
    ),
    (
        "data.trian_fraction",
        "0.9",
        &["data.trian_fraction: unknown key", "train_fraction"],
    ),
    ("locale", "{}", &["locale: unknown key", "local"]),
    (
        "training.stage_0.optimizer.type",
        "adagard",
        &["training.stage_0.optimizer.type: found 'adagard'", "nearest: adagrad"],
    ),
    (
        "training.stage_0.optimizer.learning_rate",
        "0.1",
        &["training.stage_0.optimizer.learning_rate: unknown key", "lr"],
    ),
    (
        "training.stage_1.scheduler.type",
        "cosin",
        &["training.stage_1.scheduler.type: found 'cosin'", "nearest: cosine"],
    ),
    (
        "model.embedding_kwargs.activation",
        "rely",
        &["model.embedding_kwargs.activation: found 'rely'", "nearest: relu"],
    ),
    (
        "model.posterior_model_type",
        "normal_flow",
        &["model.posterior_model_type: found 'normal_flow'", "normalizing_flow"],
    ),
    (
        "data.extrinsic_prior.psi",
        "Uniform(0, pi",
        &["data.extrinsic_prior.psi", "Uniform(0, pi"],
    ),
    (
        "data.extrinsic_prior.psi",
        "Unifrom(0, 1)",
        &["data.extrinsic_prior.psi", "Unifrom"],
    ),
    ("data.detectors", "[H1, X1]", &["data.detectors: found 'X1'", "H1, L1"]),
    ("data.detectors", "[H1, V1]", &["asds_fiducial.hdf5", "'V1'", "H1, L1"]),
    (
        "data.domain_update",
        "{f_min: 10.0}",
        &["data.domain_update", "[10, 128]", "[20, 128]"],
    ),
    (
        "data.domain_update",
        "{f_max: 500.0}",
        &["data.domain_update", "[20, 500]", "[20, 128]"],
    ),
    (
        "data.domain_update",
        "{f_min: 25.1}",
        &["data.domain_update", "25.1", "0.25"],
    ),
    (
        "data.domain_update",
        "{delta_f: 0.5}",
        &["data.domain_update.delta_f", "0.5", "0.25"],
    ),
    (
        "data.inference_parameters",
        "[chirp_mass, tilt_1]",
        &["data.inference_parameters", "tilt_1", "chirp_mass"],
    ),
    ("data.train_fraction", "0.001", &["data.train_fraction", "240 samples"]),
    (
        "model.embedding_kwargs.svd.num_training_samples",
        "230",
        &["model.embedding_kwargs.svd.num_training_samples", "230", "20", "240"],
    ),
    (
        "model.embedding_kwargs.svd.size",
        "160",
        &["model.embedding_kwargs.svd.num_training_samples", "150", "160"],
    ),
];

const ON_TWO_RANKS: &[Change] = &[
    (
        "training.stage_0.batch_size",
        "63",
        &["training.stage_0.batch_size: found 63, but 2 ranks", "62 and 64"],
    ),
    ("training.stage_1.epochs", "", &["training.stage_1.epochs: missing"]),
    ("data.detectors", "[H1, V1]", &["asds_fiducial.hdf5", "'V1'"]),
    (
        "model.embedding_kwargs.svd.num_training_samples",
        "230",
        &["model.embedding_kwargs.svd.num_training_samples"],
    ),
    (
        "data.waveform_dataset_path",
        "/nowhere/waveforms.hdf5",
        &["/nowhere/waveforms.hdf5", "No such file"],
    ),
];

fn refused(changes: &[Change], ranks: usize) {
    for (key, yaml, parts) in changes {
        println!("{key} = {yaml}");
        let told = Workplace::toy().with(key, yaml).assert_refused(ranks, parts);
        // What is wrong with a data file is told with that file, everything else with the settings file.
        if !parts.iter().any(|part| part.contains(".hdf5")) {
            told.assert_error(&["run.yaml"]);
        }
    }
}

#[test]
fn bad_values_are_refused() {
    refused(ON_ONE_RANK, 1);
}

#[test]
fn on_several_ranks_the_message_is_told_once() {
    refused(ON_TWO_RANKS, 2);
}

#[test]
fn more_svd_elements_than_the_dataset_has_are_refused() {
    let parts = ["data.svd_size_update", "65", "64"];
    Workplace::npe()
        .with("data.svd_size_update", "65")
        .assert_refused(1, &parts);
}

/// Found before the first epoch, not at its end.
#[test]
fn a_batch_too_small_for_batch_normalization_is_refused() {
    // 225 training samples.
    let workplace = Workplace::toy_with_batch_norm()
        .with("data.train_fraction", "0.94")
        .with("training.stage_1.batch_size", "32");
    let parts = ["run.yaml", "training.stage_1.batch_size: found 32", "1 of the 225"];
    workplace.assert_refused(1, &parts);
    workplace.assert_refused(2, &parts);
}

/// Settings files that cannot be read, or are no settings.
#[test]
fn files_that_are_no_settings_are_refused() {
    let refused = |text: &str, parts: &[&str]| {
        let workplace = Workplace::toy();
        std::fs::write(workplace.settings_file(), text).unwrap();
        for mut command in [program(1), check(1)] {
            command.arg(workplace.settings_file());
            let ended = common::run(command);
            ended.assert_refused(parts);
            ended.assert_refused(&["run.yaml"]);
        }
        assert!(!workplace.train_dir().exists());
    };
    refused("", &["empty"]);
    refused("data:\n  train_fraction: [0.9\nmodel: {}\n", &["line 3", "not YAML"]);
    refused(
        "data:\n  ref_time: 1.0\n  ref_time: 2.0\n",
        &["line 3", "data.ref_time", "twice"],
    );
    refused("\u{0}\u{1}", &["not YAML"]);

    let workplace = Workplace::toy();
    let mut missing = program(2);
    missing.arg(workplace.path("missing.yaml"));
    common::run(missing).assert_refused(&["missing.yaml", "cannot be read", "No such file"]);
    std::fs::create_dir(workplace.path("folder.yaml")).unwrap();
    let mut folder = program(1);
    folder.arg(workplace.path("folder.yaml"));
    common::run(folder).assert_refused(&["folder.yaml", "cannot be read", "directory"]);
}
