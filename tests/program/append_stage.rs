//! `append-stage`, as `dingo_append_training_stage`: the plan changes, and training goes on with it.

use crate::common::{self, Ended};
use crate::dingo;
use crate::workplace::{case, history, program, Workplace, COMPLETE, STOPPED};
use dingo_spmd::checkpoint::{Checkpoint, Object};
use dingo_spmd::settings::yaml;
use std::path::{Path, PathBuf};

/// A file with a stage of this many epochs that case `toy`'s network can be trained with.
fn stage_file(folder: &Path, epochs: usize) -> PathBuf {
    let path = folder.join(format!("stage_of_{epochs}.yaml"));
    let asds = case("toy").join("asds.hdf5");
    let text = format!(
        "epochs: {epochs}\nasd_dataset_path: {}\nfreeze_rb_layer: false\noptimizer: {{type: adam, lr: 1e-4}}\n\
         scheduler: {{type: cosine, T_max: {epochs}}}\nbatch_size: 32\n",
        asds.display()
    );
    std::fs::write(&path, text).unwrap();
    path
}

fn append(checkpoint: &Path, stage: &Path, out: &Path, more: &[&str]) -> Ended {
    let mut command = program(1);
    command.arg("append-stage").arg("--checkpoint").arg(checkpoint);
    command
        .arg("--stage_settings_file")
        .arg(stage)
        .arg("--out_file")
        .arg(out);
    command.args(more);
    common::run(command)
}

/// The keys of the `training` section, and what our record says of being complete.
fn plan(path: &Path) -> (Vec<String>, Option<bool>) {
    let checkpoint = Checkpoint::load(path).unwrap();
    let training = checkpoint.metadata.train_settings["training"].as_mapping().unwrap();
    let names = training.keys().map(|name| name.as_str().unwrap().to_owned()).collect();
    (
        names,
        checkpoint
            .spmd
            .as_ref()
            .and_then(|spmd| spmd.get("complete")?.as_bool()),
    )
}

#[test]
fn a_complete_run_goes_on_with_a_further_stage() {
    let workplace = Workplace::toy();
    workplace.run_to(COMPLETE, 1);
    let stage = stage_file(&workplace.path(""), 2);
    assert_eq!(plan(&workplace.latest()).1, Some(true));
    // In place of the checkpoint itself.
    let ended = append(&workplace.latest(), &stage, &workplace.latest(), &[]);
    ended.assert_status(COMPLETE);
    ended.assert_says("Checkpoint training plan consists of 2 stages.");
    ended.assert_says("Appending new stage to training plan.");
    let (stages, complete) = plan(&workplace.latest());
    assert_eq!(stages, ["stage_0", "stage_1", "stage_2"]);
    assert_eq!(complete, Some(false));
    let mut command = program(2);
    command.arg("--train-dir").arg(workplace.train_dir());
    common::run(command).assert_status(COMPLETE);
    let rows = workplace.history();
    assert_eq!(rows.iter().map(|row| row.epoch).collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
    assert_eq!(rows[3].lr, 1e-4);
    assert_eq!(plan(&workplace.latest()).1, Some(true));
    assert!(workplace.files().contains(&"model_stage_2.pt".into()));
}

#[test]
fn a_stage_to_come_is_replaced_and_nothing_else_changes() {
    let workplace = Workplace::toy().with("local.runtime_limits", "{max_epochs_per_run: 2}");
    workplace.run_to(STOPPED, 1);
    let changed = workplace.path("changed.pt");
    let stage = stage_file(&workplace.path(""), 3);
    let ended = append(&workplace.latest(), &stage, &changed, &["--replace", "1"]);
    ended.assert_status(COMPLETE);
    ended.assert_says("Replacing planned stage 1 with new stage.");
    assert!(!ended.stdout.contains("WARN"), "{}", ended.output());
    assert_eq!(plan(&changed).0, ["stage_0", "stage_1"]);

    let (before, after) = (
        Object::load(workplace.latest()).unwrap(),
        Object::load(&changed).unwrap(),
    );
    for key in [
        "model_kwargs",
        "epoch",
        "iteration",
        "version",
        "optimizer_kwargs",
        "scheduler_state_dict",
        "spmd",
    ] {
        assert_eq!(
            before.get(key).unwrap().to_value(),
            after.get(key).unwrap().to_value(),
            "{key}"
        );
    }
    let folder = workplace.path("further");
    std::fs::create_dir(&folder).unwrap();
    std::fs::copy(
        workplace.train_dir().join("local_settings.yaml"),
        folder.join("local_settings.yaml"),
    )
    .unwrap();
    let mut command = program(1);
    command
        .arg("--checkpoint")
        .arg(&changed)
        .arg("--train-dir")
        .arg(&folder);
    common::run(command).assert_status(STOPPED);
    let rates: Vec<f64> = history(&folder).iter().map(|row| row.lr).collect();
    assert_eq!(rates[0], 1e-4);
}

/// As in Dingo, a stage that has run for as many epochs as it is to have is complete.
#[test]
fn a_stage_that_has_begun_can_be_replaced_with_a_warning() {
    let workplace = Workplace::toy().with("local.runtime_limits", "{max_epochs_per_run: 1}");
    workplace.run_to(STOPPED, 1);
    let changed = workplace.path("changed.pt");
    let stage = stage_file(&workplace.path(""), 1);
    let ended = append(&workplace.latest(), &stage, &changed, &["--replace", "0"]);
    ended.assert_status(COMPLETE);
    ended.assert_says("stage 0 has already begun in the checkpoint, whose epoch is 1");
    let spmd = Checkpoint::load(&changed).unwrap().spmd.unwrap();
    let progress = spmd.get("progress").unwrap().to_value().unwrap();
    assert_eq!(
        progress,
        yaml::read("{stage: 1, epoch_in_stage: 0, batches: 0}").unwrap().value
    );
}

#[test]
fn what_is_no_stage_is_refused_and_nothing_written() {
    let folder = tempfile::tempdir().unwrap();
    let (stage, out) = (stage_file(folder.path(), 2), folder.path().join("out.pt"));
    let trained = case("toy").join("model_trained.pt");
    let refused = |checkpoint: &Path, stage: &Path, more: &[&str], parts: &[&str]| {
        append(checkpoint, stage, &out, more).assert_refused(parts);
        assert!(!out.exists());
    };
    refused(
        &trained,
        &stage,
        &["--replace", "2"],
        &["--replace: 2 is no stage of", "from 0 to 1"],
    );
    refused(&folder.path().join("no.pt"), &stage, &[], &["no.pt", "No such file"]);
    refused(
        &trained,
        &folder.path().join("no.yaml"),
        &[],
        &["no.yaml", "No such file"],
    );
    refused(&stage, &stage, &[], &["not a whole PyTorch checkpoint"]);
    let wrong = folder.path().join("wrong.yaml");
    for (text, parts) in [
        (
            "epochs: 1\n",
            &["wrong.yaml", "training.stage_2.optimizer: missing"][..],
        ),
        (
            "stage_2: {epochs: 1}\n",
            &["wrong.yaml, line 1", "training.stage_2.stage_2: unknown key"],
        ),
        ("epochs: 0\n", &["training.stage_2."]),
        ("- 1\n", &["wrong.yaml"]),
    ] {
        std::fs::write(&wrong, text).unwrap();
        refused(&trained, &wrong, &[], parts);
    }
}

/// Files of both origins, compared with what Dingo's tool makes of them.
#[test]
fn dingos_tool_makes_the_same() {
    let Some(tool) = dingo::tool("dingo_append_training_stage") else {
        return;
    };
    let workplace = Workplace::toy();
    workplace.run_to(COMPLETE, 1);
    let stage = stage_file(&workplace.path(""), 2);
    // Dingo leaves a number that YAML reads as text.
    let text = std::fs::read_to_string(&stage).unwrap().replace("1e-4", "0.0001");
    std::fs::write(&stage, text).unwrap();
    for (origin, checkpoint) in [
        ("Dingo", case("toy").join("model_trained.pt")),
        ("here", workplace.latest()),
    ] {
        for more in [&[][..], &["--replace", "1"]] {
            let (ours, dingos) = (workplace.path("ours.pt"), workplace.path("dingos.pt"));
            append(&checkpoint, &stage, &ours, more).assert_status(COMPLETE);
            let mut command = tool();
            command
                .arg("--checkpoint")
                .arg(&checkpoint)
                .arg("--stage_settings_file")
                .arg(&stage);
            command.arg("--out_file").arg(&dingos).args(more);
            common::run(command).assert_status(0);
            let settings = |path: &Path| Checkpoint::load(path).unwrap().metadata.train_settings;
            assert_eq!(settings(&ours), settings(&dingos), "{origin} {more:?}");
        }
    }
}

#[test]
fn dingo_trains_the_appended_stage() {
    let workplace = Workplace::toy();
    let appended = workplace.path("appended.pt");
    let Some(mut command) = dingo::check(&appended) else {
        return;
    };
    workplace.run_to(COMPLETE, 1);
    append(&workplace.latest(), &stage_file(&workplace.path(""), 2), &appended, &[]).assert_status(COMPLETE);
    let folder = dingo::train_dir(&workplace);
    command.arg("--resume").arg(&folder);
    let ended = common::run(command);
    ended.assert_status(0);
    ended.assert_says("epochs trained by Dingo: 2");
    let rates: Vec<f64> = history(&folder).iter().map(|row| row.lr).collect();
    assert_eq!(rates[0], 1e-4);
}
