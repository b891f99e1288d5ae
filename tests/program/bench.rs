//! Measurements: what they report, on one rank and on several, and the files they write.

use crate::common::{self, Ended};
use crate::workplace::{case, in_repository, program, Workplace, BAD_INPUT, COMPLETE};
use dingo_spmd::settings::Value;
use std::path::Path;

/// `bench` on these settings, with few steps.
fn bench(ranks: usize, workplace: &Workplace, arguments: &[&str]) -> Ended {
    workplace.write_settings();
    let mut command = program(ranks);
    command.arg("bench").arg(workplace.settings_file());
    command.args(["--steps", "3", "--warm-up", "1"]).args(arguments);
    common::run(command)
}

fn path(workplace: &Workplace, name: &str) -> String {
    workplace.path(name).to_str().expect("UTF-8").into()
}

/// The number that follows `label` in what was said.
#[track_caller]
fn number(ended: &Ended, label: &str) -> f64 {
    let after = ended.stdout.split(label).nth(1);
    let after = after.unwrap_or_else(|| panic!("{label:?} is not in: {}", ended.output()));
    let digits: String = after.chars().take_while(|c| c.is_ascii_digit() || *c == '.').collect();
    digits
        .parse()
        .unwrap_or_else(|_| panic!("no number after {label:?} in: {}", ended.output()))
}

#[test]
fn all_is_reported_on_one_rank_and_on_two() {
    for ranks in [1, 2] {
        let workplace = Workplace::npe();
        let json = path(&workplace, "all.json");
        let ended = bench(ranks, &workplace, &["--json", &json, "--samples", "1000"]);
        ended.assert_status(COMPLETE);
        for part in [
            "quartiles",
            "slowest rank",
            "of which: forward",
            "data pipeline alone: ",
            "RssAnon ",
            "peak RSS ",
        ] {
            ended.assert_says(part);
        }
        ended.assert_says(&format!("{ranks} rank{} on 1 node", if ranks == 1 { "" } else { "s" }));
        let calls = ended
            .stdout
            .lines()
            .find_map(|line| line.strip_prefix("ATen calls per step: "));
        let calls: u64 = calls
            .and_then(|number| number.parse().ok())
            .expect("a line with a number alone");
        assert!(calls > 100, "{calls}");

        assert!(number(&ended, "training, both on the same cores: ") > 0.0);
        let collectives = number(&ended, "communication per step: ");
        // One bucket of gradients, and with several ranks the statistics of BatchNorm.
        assert!(
            if ranks == 1 {
                collectives == 0.0
            } else {
                collectives > 1.0
            },
            "{collectives}"
        );

        let text = std::fs::read_to_string(&json).expect("a file");
        let all: Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(all[0]["ranks"].as_u64(), Some(ranks as u64));
        assert_eq!(all[0]["aten_calls"].as_u64(), Some(calls));
        let [step, speed, epoch] = [
            &all[0]["step"]["time"]["median"],
            &all[0]["network_speed"],
            &all[0]["epoch_time"],
        ]
        .map(|value| value.as_f64().expect("a number"));
        assert!(
            (speed * step / 64.0 - 1.0).abs() < 1e-9,
            "{speed} samples/s, {step} s a step"
        );
        assert!(
            (epoch * speed / 1000.0 - 1.0).abs() < 1e-9,
            "{speed} samples/s, {epoch} s an epoch"
        );
        ended.assert_says(&format!("network alone: {speed:.1} samples/s"));
        let flops = ["first_layer", "embedding", "flow"].map(|part| all[0]["flops"][part].as_u64());
        assert!(
            flops.iter().all(|flops| flops.is_some_and(|flops| flops > 0)),
            "{flops:?}"
        );
    }
}

/// A table grows by a row for each batch size and variant, on any number of ranks, and is drawn.
#[test]
fn sweeps_of_several_numbers_of_ranks_become_a_table_and_a_picture() {
    let mut workplace = Workplace::toy();
    workplace.set("data.waveform_dataset_path", "not_there.hdf5");
    workplace.set("training.stage_0.asd_dataset_path", "not_there_either.hdf5");
    let (table, picture) = (path(&workplace, "table.csv"), path(&workplace, "picture.svg"));
    let synthetic = ["--synthetic", "--bins", "50", "--csv", &table, "--no-freeze"];
    let run = |ranks: usize, arguments: &[&str]| {
        bench(ranks, &workplace, &[&synthetic, arguments].concat()).assert_status(COMPLETE);
    };
    run(2, &["--sweep-batch", "8,16", "--variants", "per-rank,sync"]);
    run(2, &["--batch-size", "8", "--variants", "layer-norm,amp"]);
    run(1, &["--sweep-batch", "8,16", "--picture", &picture]);

    let text = std::fs::read_to_string(&table).expect("a table");
    let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split(',').collect()).collect();
    assert_eq!(rows.len(), 1 + 2 * 2 + 2 + 2, "{text}");
    assert!(rows.iter().all(|row| row.len() == rows[0].len()), "{text}");
    let column = |name: &str| rows[0].iter().position(|&other| other == name).expect("a column");
    assert_eq!(rows[1][column("variant")], "per-rank");
    assert_eq!(rows[6][column("variant")], "amp");
    assert_eq!(rows[8][column("ranks")], "1");
    assert_eq!(rows[1][column("frozen")], "false");
    // Nothing but the gradients is reduced unless BatchNorm is synchronized.
    let collectives = |row: usize| rows[row][column("collectives")].parse::<f64>().expect("a number");
    assert_eq!(collectives(1), 1.0, "{text}");
    assert!(collectives(2) > 1.0, "{text}");

    let other = path(&workplace, "other.svg");
    let mut plot = program(1);
    plot.args(["bench-plot", &table, "--output", &other]);
    common::run(plot).assert_status(COMPLETE);
    for file in [&picture, &other] {
        let text = std::fs::read_to_string(file).expect("a picture");
        for part in ["<svg", "sync, 2 ranks", "as-set, 1 rank", "as-set, ideal"] {
            assert!(text.contains(part), "{part:?} is not in {file}");
        }
    }
}

#[test]
fn growth_is_a_table() {
    let mut workplace = Workplace::toy();
    workplace.set("data.waveform_dataset_path", "not_there.hdf5");
    let ended = bench(1, &workplace, &["--growth", "--bins", "50", "--batch-size", "8"]);
    ended.assert_status(COMPLETE);
    for part in [
        "as set",
        "flow steps",
        "hidden size",
        "batch size 16 (not 8)",
        "frequency bins 100 (not 50)",
        "detectors 1",
    ] {
        ended.assert_says(part);
    }
}

#[test]
fn the_number_of_bins_follows_from_the_settings() {
    let mut workplace = Workplace::toy();
    workplace.set("data.waveform_dataset_path", "not_there.hdf5");
    workplace.set("data.domain_update", "{f_min: 20.0, f_max: 30.0, delta_f: 0.25}");
    let json = path(&workplace, "all.json");
    let ended = bench(
        1,
        &workplace,
        &["--synthetic", "--json", &json, "--batch-size", "8", "--no-freeze"],
    );
    ended.assert_status(COMPLETE);
    let all: Value = serde_json::from_str(&std::fs::read_to_string(&json).unwrap()).unwrap();
    let detectors = workplace.get("data.detectors").as_sequence().expect("a list").len() as u64;
    let size = workplace
        .get("model.embedding_kwargs.svd.size")
        .as_u64()
        .expect("a number");
    // Forward and the weights' gradient; 41 bins from 20 to 30 Hz.
    let expected = 2 * (2 * 8 * (3 * 41) * (2 * size)) * detectors;
    assert_eq!(all[0]["flops"]["first_layer"].as_u64(), Some(expected));
}

#[test]
fn what_cannot_be_measured_is_refused() {
    let workplace = Workplace::toy();
    let json = path(&workplace, "none.json");
    for (ranks, arguments, part) in [
        (1, &["--steps", "0"][..], "--steps"),
        (1, &["--variants", "graph"], "GPU"),
        (1, &["--variants", "sync,fast"], "per-rank"),
        (1, &["--sweep-batch", "8,x"], "--sweep-batch"),
        (1, &["--freeze", "--no-freeze"], "--no-freeze"),
        (1, &["--growth", "--json", &json], "--json"),
    ] {
        let ended = bench(ranks, &workplace, arguments);
        ended.assert_status(BAD_INPUT);
        ended.assert_says(part);
    }
    bench(2, &workplace, &["--batch-size", "9"]).assert_refused(&["batch_size", "8 and 10"]);
    bench(1, &workplace, &["--bins", "50"]).assert_refused(&["--bins", "--synthetic"]);
    bench(2, &workplace, &["--batch-size", "100000"]).assert_refused(&["100000", "--synthetic"]);
    assert!(!Path::new(&json).exists());

    let foreign = path(&workplace, "foreign.csv");
    std::fs::write(&foreign, "a,b\n1,2\n").unwrap();
    bench(1, &workplace, &["--csv", &foreign]).assert_refused(&["foreign.csv, line 1"]);
    let mut plot = program(1);
    plot.args(["bench-plot", &foreign, "--output", &path(&workplace, "picture.svg")]);
    common::run(plot).assert_refused(&["foreign.csv", "no column variant"]);
    let mut plot = program(1);
    plot.args([
        "bench-plot",
        "nowhere.csv",
        "--output",
        &path(&workplace, "picture.svg"),
    ]);
    common::run(plot).assert_refused(&["nowhere.csv"]);
}

/// The dataset that is made is one to train on.
#[test]
fn a_made_dataset_is_trained_on() {
    let mut workplace = Workplace::of_file(&in_repository("settings/bench.yaml"));
    let folder = workplace.path("data");
    let mut make = program(1);
    make.arg("bench-dataset").arg(&folder);
    make.args(["--samples", "120", "--size", "10", "--f-max", "64", "--delta-f", "0.5"]);
    common::run(make).assert_status(COMPLETE);
    let made = |name: &str| folder.join(name).to_str().expect("UTF-8").to_string();
    workplace.set("data.waveform_dataset_path", &made("waveform_dataset.hdf5"));
    workplace.set("training.stage_0.asd_dataset_path", &made("asds_fiducial.hdf5"));
    workplace.set("data.domain_update", "");
    workplace.set("data.svd_size_update", "");
    workplace.set("model.embedding_kwargs.hidden_dims", "[16]");
    workplace.set(
        "model.embedding_kwargs.svd",
        "{size: 10, num_training_samples: 50, num_validation_samples: 10}",
    );
    workplace.set("model.posterior_kwargs.num_flow_steps", "2");
    workplace.set("training.stage_0.batch_size", "32");
    workplace.set("training.stage_0.epochs", "1");
    workplace.run_to(COMPLETE, 1);
    let [row] = workplace.history()[..] else {
        panic!("{:?}", workplace.history());
    };
    assert!(row.train_loss.is_finite() && row.test_loss.is_finite());
}

/// Kept working for those who know it.
#[test]
fn the_data_pipeline_is_measured_by_itself() {
    let mut command = program(1);
    command.current_dir(case("npe"));
    command.args(["bench-data", "train_settings.yaml", "--seconds", "0.5"]);
    let ended = common::run(command);
    ended.assert_status(COMPLETE);
    ended.assert_says("samples/s");
}
