//! Accumulation, mixed precision, batch normalization by share, and what becomes of numbers that are not finite.

use crate::workplace::{parameters, Workplace, BAD_INPUT, COMPLETE, FAILED, STOPPED};
use dingo_spmd::checkpoint::{Checkpoint, Object};

fn spmd(workplace: &Workplace) -> Object {
    Checkpoint::load(workplace.latest()).unwrap().spmd.unwrap()
}

/// The reference case, trained as long as it takes to learn something.
fn npe() -> Workplace {
    let mut workplace = Workplace::npe();
    for (stage, epochs) in [("stage_0", "4"), ("stage_1", "2")] {
        workplace.set(&format!("training.{stage}.epochs"), epochs);
        workplace.set(&format!("training.{stage}.optimizer.lr"), "0.002");
    }
    workplace
}

#[test]
fn bf16_learns_what_single_precision_learns() {
    let single = npe();
    single.run_to(COMPLETE, 2);
    let mut mixed = npe();
    for stage in ["stage_0", "stage_1"] {
        mixed.set(&format!("training.{stage}.automatic_mixed_precision"), "true");
        mixed.set(&format!("training.{stage}.amp_dtype"), "bf16");
    }
    mixed.run_to(COMPLETE, 2);
    let (single, mixed) = (single.history(), mixed.history());
    let (first, last, mixed) = (single[0], single[single.len() - 1], mixed[mixed.len() - 1]);
    println!(
        "test losses: {} at first, then {} and {}",
        first.test_loss, last.test_loss, mixed.test_loss
    );
    assert!(last.test_loss < 0.9 * first.test_loss, "it has learned");
    assert_ne!(mixed.test_loss, last.test_loss, "the precision is another");
    assert!((mixed.test_loss - last.test_loss).abs() < 0.02 * last.test_loss.abs());
}

/// A scale of 2^16 overflows nothing here, so it stays; the scaler goes on where the run was stopped.
#[test]
fn the_scaler_of_fp16_is_in_the_checkpoint() {
    let workplace = Workplace::toy()
        .with("training.stage_0.automatic_mixed_precision", "true")
        .with("training.stage_0.amp_dtype", "fp16")
        .with("training.stage_0.epochs", "3")
        .with("local.float32_matmul_precision", "high")
        .with("local.runtime_limits", "{max_epochs_per_run: 1}");
    for epoch in 1..=2 {
        workplace.run_to(STOPPED, 2);
        let scaler = |key: &str| {
            spmd(&workplace)
                .get("scaler")
                .and_then(|scaler| scaler.get(key)?.as_f64())
        };
        assert_eq!(scaler("scale"), Some(65536.0));
        assert_eq!(scaler("_growth_tracker"), Some(4.0 * f64::from(epoch)));
    }
    let metadata = Checkpoint::load(workplace.latest()).unwrap().metadata.other;
    assert_eq!(metadata["float32_matmul_precision"].as_str(), Some("high"));
}

#[test]
fn accumulation_counts_steps_and_tells_what_it_leaves_out() {
    // 228 samples: 29 batches of 8, the last one of 4.
    let workplace = Workplace::toy()
        .with("training.stage_0.batch_size", "8")
        .with("training.stage_0.gradient_updates_per_optimizer_step", "3");
    let ended = workplace.run_to(COMPLETE, 2);
    ended.assert_says("Each epoch leaves out 12 of its 228 samples");
    ended.assert_says("Train Epoch: 2 [216/228 (95%)]");
    assert_eq!(ended.stdout.matches("Train Epoch: 2").count(), 9);
    let latest = Checkpoint::load(workplace.latest()).unwrap();
    assert_eq!(latest.iteration, 9 + 9 + 4);

    let refused = Workplace::toy().with("training.stage_1.gradient_updates_per_optimizer_step", "5");
    refused.run_to(BAD_INPUT, 2);
    refused.assert_refused(
        2,
        &[
            "training.stage_1.gradient_updates_per_optimizer_step",
            "found 5",
            "only 4 batches of 64",
        ],
    );
}

/// The network is the same on all ranks at every checkpoint, or the comparison of each epoch would have ended the run.
#[test]
fn ranks_may_normalize_by_their_own_shares() {
    let losses = |synchronized: &str| {
        let workplace = npe()
            .with("training.stage_0.epochs", "1")
            .with("training.stage_1.epochs", "1")
            .with("local.sync_batch_norm", synchronized);
        workplace.run_to(COMPLETE, 2);
        workplace.history()[1].test_loss
    };
    let (synchronized, own) = (losses("true"), losses("false"));
    assert_ne!(synchronized, own);
    assert!(
        (synchronized - own).abs() < 0.05 * synchronized.abs(),
        "{synchronized} {own}"
    );
}

/// A learning rate beyond all measure. Steps that are not finite are not made, so the checkpoint stays good, and it is named.
#[test]
fn a_run_that_diverges_stops_with_a_good_checkpoint() {
    let workplace = Workplace::toy()
        .with("training.stage_0.epochs", "40")
        .with("training.stage_0.optimizer", "{type: sgd, lr: 1.0e+30}")
        .with("local.max_skipped_steps", "7");
    let ended = workplace.run(2);
    ended.assert_status(FAILED);
    let latest = workplace.latest();
    ended.assert_error(&[
        "7 optimizer steps in a row",
        "local.max_skipped_steps",
        latest.to_str().unwrap(),
    ]);
    for (name, bytes) in parameters(&latest) {
        let numbers = bytes
            .chunks_exact(4)
            .map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap()));
        assert!(
            name.contains("num_batches") || numbers.into_iter().all(f32::is_finite),
            "{name}"
        );
    }
}

#[test]
fn the_noise_scale_has_a_file_and_goes_on_with_the_run() {
    let workplace = Workplace::toy()
        .with("training.stage_0.batch_size", "8")
        .with("local.gradient_noise_scale", "true")
        .with("local.runtime_limits", "{max_epochs_per_run: 1}");
    let ended = workplace.run_to(STOPPED, 2);
    ended.assert_says("Gradient noise scale: ");
    let weight = || {
        spmd(&workplace)
            .get("noise_scale")
            .and_then(|sums| sums.get("weight")?.as_f64())
    };
    // The last batch of an epoch is not a full one.
    let first = weight().unwrap();
    assert!((26.0..28.0).contains(&first), "{first}");
    workplace.run_to(STOPPED, 2);
    assert!(weight().unwrap() > 1.8 * first);
    let text = std::fs::read_to_string(workplace.train_dir().join("gradient_noise_scale.txt")).unwrap();
    for (epoch, row) in (1..).zip(text.lines()) {
        let numbers: Vec<f64> = row.split('\t').map(|number| number.parse().unwrap()).collect();
        let [number, noise_scale, error, batch_size, square_norm, variance] = numbers[..] else {
            panic!("{row}");
        };
        assert_eq!(number, f64::from(epoch));
        assert!(
            (noise_scale - variance / square_norm).abs() < 1e-9 * noise_scale && error > 0.0,
            "{row}"
        );
        assert!(
            batch_size % 2.0 == 0.0 && (batch_size - noise_scale).abs() <= 1.0,
            "{row}"
        );
    }
    assert_eq!(text.lines().count(), 2);

    let alone = Workplace::toy().with("local.gradient_noise_scale", "true");
    alone.run_to(COMPLETE, 1).assert_says("needs several ranks");
}
