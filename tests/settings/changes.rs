//! Old spellings, and settings that differ from a checkpoint's.

use super::*;
use dingo_spmd::settings::{bring_up_to_date, Norm};

#[test]
fn old_keys_are_brought_up_to_date() {
    let mut old = yaml::read(&text_of(NPE)).unwrap().value;
    let model = old["model"].as_mapping_mut().unwrap();
    model.shift_remove("posterior_model_type");
    model.insert("type".into(), "nsf+embedding".into());
    for (new, old) in [
        ("posterior_kwargs", "nsf_kwargs"),
        ("embedding_kwargs", "embedding_net_kwargs"),
    ] {
        let section = model.shift_remove(new).unwrap();
        model.insert(old.into(), section);
    }
    let now = npe();
    assert_eq!(parse(&old).unwrap().train.raw, now.raw);
    assert_eq!(now.raw["model"]["embedding_type"], Value::from("resnet"));
    let transform = &now.raw["model"]["posterior_kwargs"]["base_transform_kwargs"];
    assert_eq!(
        (transform["norm"].as_str(), transform.get("batch_norm")),
        (Some("BatchNorm"), None)
    );
    let mut again = now.raw.clone();
    bring_up_to_date(&mut again).unwrap();
    assert_eq!(again, now.raw);
}

#[test]
fn norm_has_several_spellings() {
    let norm = |yaml: &str| {
        let settings = with("model.posterior_kwargs.base_transform_kwargs", yaml).train;
        let raw = settings.raw["model"]["posterior_kwargs"]["base_transform_kwargs"]["norm"].clone();
        (settings.model.posterior.base_transform.norm, raw)
    };
    for yaml in [
        "{batch_norm: true}",
        "{batch_norm: 'true'}",
        "{batch_norm: yes}",
        "{norm: BatchNorm}",
    ] {
        assert_eq!(norm(yaml), (Norm::BatchNorm, Value::from("BatchNorm")), "{yaml}");
    }
    for yaml in [
        "{batch_norm: false}",
        "{norm: null}",
        "{norm: None}",
        "{norm: None, batch_norm: off}",
    ] {
        assert_eq!(norm(yaml), (Norm::None, Value::Null), "{yaml}");
    }
    let both = message("model.embedding_kwargs.layer_norm", "true");
    assert!(
        both.contains("model.embedding_kwargs.batch_norm: found true beside layer_norm"),
        "{both}"
    );
}

#[test]
fn completed_settings_are_those_of_dingos_checkpoint() {
    let dingos = yaml::read(&text_of("tests/settings/npe_completed.yaml")).unwrap().value;
    let checkpoint = TrainSettings::from_value(dingos.clone()).unwrap();
    let mut ours = npe();
    assert_eq!(ours.differences(&checkpoint, 3), []);
    ours.set_context_parameters(Vec::new());
    ours.set_standardization(checkpoint.data.standardization.as_ref().unwrap());
    ours.complete_model(10, checkpoint.model.embedding.input_dims.unwrap());
    assert_eq!(ours.raw, dingos);
    assert_eq!(ours.model.posterior.context_dim, Some(24));
}

/// The keys in which the npe case, with `yaml` in the place of `key`, differs from a checkpoint of the case.
fn differing(key: &str, yaml: &str, completed_epochs: u64) -> Vec<String> {
    let mut trained = npe();
    trained.set_context_parameters(Vec::new());
    trained.complete_model(10, [2, 3, 1501]);
    let checkpoint = TrainSettings::from_value(trained.raw).unwrap();
    let differences = with(key, yaml).train.differences(&checkpoint, completed_epochs);
    differences.iter().map(|difference| difference.key.clone()).collect()
}

#[test]
fn what_means_the_same_is_no_difference() {
    let respelled = "{hidden_dim: 48, num_transform_blocks: 2, activation: ELU, dropout_probability: 0, num_bins: 8, \
                      base_transform_type: rq-coupling, norm: BatchNorm}";
    let cases = [
        ("data.train_fraction", "'9.5e-1'"),
        ("data.window", "null"),
        ("model.embedding_type", "ResNet"),
        ("model.posterior_kwargs.base_transform_kwargs", respelled),
        ("training.stage_0.batch_size", "64.0"),
        ("training.stage_0.optimizer", "{lr: 5e-4, type: Adam}"),
        ("local.num_workers", "9"),
    ];
    for (key, yaml) in cases {
        assert!(differing(key, yaml, 3).is_empty(), "{key} = {yaml}");
    }
}

#[test]
fn differences_from_a_checkpoint_are_found() {
    let cases = [
        ("data.detectors", "[L1, H1]"),
        ("data.svd_size_update", "null"),
        ("data.zero_noise", "true"),
        ("data.context_parameters", "[ra]"),
        ("model.embedding_kwargs.svd.size", "11"),
        ("model.embedding_kwargs.batch_norm", "false"),
        ("model.posterior_kwargs.base_transform_kwargs.activation", "relu"),
        ("training.stage_0.optimizer.lr", "1.0e-5"),
        ("training.stage_0.epochs", "3"),
    ];
    let detectors = with("data.detectors", "[L1, H1]").train.differences(&npe(), 0);
    assert_eq!(
        detectors[0].to_string(),
        "data.detectors: ['L1', 'H1'] here, ['H1', 'L1'] there"
    );
    for (key, yaml) in cases {
        assert_eq!(differing(key, yaml, 1), [key.replace("batch_norm", "norm")], "{yaml}");
    }
}

#[test]
fn stages_not_yet_begun_may_change() {
    let key = "training.stage_1.batch_size";
    assert!(differing(key, "32", 1).is_empty());
    // Stage 0 has two epochs; with both done, stage 1 has not begun.
    assert!(differing(key, "32", 2).is_empty());
    assert_eq!(differing(key, "32", 3), [key]);
    let checkpoint = npe();
    let mut shortened = checkpoint.clone();
    shortened.raw["training"]
        .as_mapping_mut()
        .unwrap()
        .shift_remove("stage_1");
    assert!(shortened.differences(&checkpoint, 2).is_empty());
    let differences = shortened.differences_with_stages_begun(&checkpoint, 2);
    let told: Vec<_> = differences.iter().map(ToString::to_string).collect();
    assert_eq!(told, ["training.stage_1: absent here, a section there"]);
}

#[test]
fn a_checkpoint_may_have_keys_of_another_version() {
    let mut raw = npe().raw;
    raw["data"]["from_the_future"] = Value::from(1);
    assert!(TrainSettings::from_value(raw).is_ok());
}
