//! The settings files that come with the program.

use crate::common;
use crate::workplace::{in_repository, Workplace, COMPLETE};
use dingo_spmd::settings::Settings;

#[test]
fn the_demo_trains() {
    let demo = Workplace::of_file(&in_repository("settings/demo.yaml"))
        .with("training.stage_0.epochs", "1")
        .with("training.stage_1", "")
        .with("data.train_fraction", "0.1")
        .with(
            "model.embedding_kwargs.svd",
            "{num_training_samples: 60, num_validation_samples: 10, size: 10}",
        )
        .with("model.embedding_kwargs.hidden_dims", "[64]");
    let mut command = demo.command(2);
    command.current_dir(in_repository(""));
    let ended = common::run(command);
    ended.assert_status(COMPLETE);
    assert_eq!(demo.history().len(), 1);
}

/// Where it stands, with the settings it has, but not on its data.
#[test]
fn the_example_for_production_is_understood() {
    let text = std::fs::read_to_string(in_repository("settings/npe.yaml")).unwrap();
    let settings = Settings::parse(&text, "npe.yaml").unwrap();
    let [pretraining, finetuning] = &settings.train.stages[..] else {
        panic!("{} stages", settings.train.stages.len())
    };
    assert_eq!((pretraining.epochs, finetuning.epochs), (300, 150));
    assert_eq!(
        (pretraining.freeze_rb_layer, finetuning.freeze_rb_layer),
        (Some(true), Some(false))
    );
    settings.train.check_batch_sizes(8).unwrap();

    // On another machine, without its files.
    let workplace = Workplace::of_file(&in_repository("settings/npe.yaml")).with("local.device", "cpu");
    let mut command = workplace.command(1);
    command.current_dir(std::env::temp_dir());
    common::run(command).assert_refused(&["training_data/waveform_dataset.hdf5", "No such file"]);
}
