//! What may be wrong in a settings file, and what is said about it.

use super::*;

/// The rows of a table beside this file: a key, what stands there (nothing: the key is missing), parts of the message.
fn rows(table: &str) -> Vec<(String, String, Vec<String>)> {
    serde_json::from_str(&text_of(&format!("tests/settings/{table}"))).unwrap()
}

#[test]
fn bad_values_are_told_with_key_value_and_what_is_allowed() {
    let rows = rows("bad_values.json");
    assert!(rows.len() >= 60);
    for (key, yaml, parts) in rows {
        let message = message(&key, &yaml);
        assert!(message.starts_with("my.yaml"), "{message}");
        for part in parts {
            assert!(message.contains(&part), "{key} = {yaml}: {part} is not in:\n{message}");
        }
    }
}

#[test]
fn unknown_keys_are_told_with_the_nearest_and_the_allowed_ones() {
    let rows = rows("unknown_keys.json");
    assert!(rows.len() >= 13);
    for (key, yaml, parts) in rows {
        let message = message(&key, &yaml);
        for part in parts {
            assert!(message.contains(&part), "{key}: {part} is not in:\n{message}");
        }
    }
}

#[test]
fn what_is_not_supported_yet_is_told_as_such() {
    let cases = [
        ("data.gnpe_time_shifts", "{kernel: x, exact_equiv: true}"),
        ("data.chirp_prior_conditioning", "{kernel: x}"),
        ("data.gnpe_chirp", "{kernel: x}"),
        ("data.tokenization", "{token_size: 8}"),
        ("data.unconditional", "true"),
        ("data.random_strain_cropping", "{deterministic_fmin_fmax: [20, 30]}"),
        ("model.posterior_model_type", "flow_matching"),
        ("model.posterior_model_type", "score_matching"),
        ("model.embedding_type", "transformer"),
        ("model.posterior_kwargs.sigma_min", "0.001"),
        (
            "model.posterior_kwargs.base_transform_kwargs.base_transform_type",
            "rq-autoregressive",
        ),
        ("training.stage_0.optimizer", "{type: lbfgs}"),
        ("training.stage_0.optimizer", "{type: adam, maximize: true}"),
    ];
    for (key, yaml) in cases {
        let message = message(key, yaml);
        assert!(
            message.contains("not supported yet") && message.contains(key),
            "{key} = {yaml}: {message}"
        );
    }
}

#[test]
fn files_that_are_no_settings_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let message = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        Settings::load(&path).unwrap_err().to_string()
    };
    let missing = Settings::load(&folder.path().join("none.yaml"))
        .unwrap_err()
        .to_string();
    assert!(missing.contains("none.yaml: cannot be read: "), "{missing}");
    let directory = Settings::load(folder.path()).unwrap_err().to_string();
    assert!(directory.contains("cannot be read: "), "{directory}");
    assert!(message("empty.yaml", b"").contains("empty.yaml: the file is empty"));
    assert!(message("binary.yaml", b"\x89HDF\r\n\x1a\n\xff").contains("not a text file"));
    assert!(message("list.yaml", b"- 1\n").contains("found [1] at the top level"));
    let syntax = message("syntax.yaml", b"data:\n  train_fraction: [0.9\nmodel: {}\n");
    assert!(syntax.contains("syntax.yaml: line 3, column 6: not YAML: "), "{syntax}");
    let twice = message("twice.yaml", b"data:\n  ref_time: 1.0\n  ref_time: 2.0\n");
    assert!(
        twice.contains("twice.yaml: line 3, column 3: the key `data.ref_time` stands here twice"),
        "{twice}"
    );
}

#[test]
fn a_message_has_the_line_of_its_key() {
    let text = text_of(NPE).replace("train_fraction: 0.95", "train_fraction: 95");
    let error = Settings::parse(&text, "my.yaml").unwrap_err();
    assert_eq!(error.dotted_key(), Some("data.train_fraction"));
    assert_eq!(
        error.to_string(),
        "my.yaml, line 3: data.train_fraction: found 95, but this must be a number between 0 and 1, both excluded"
    );
}

#[test]
fn batches_must_divide_among_the_ranks() {
    let settings = npe();
    for world_size in [1, 2, 4, 64] {
        settings.check_batch_sizes(world_size).unwrap();
    }
    let message = |world_size| settings.check_batch_sizes(world_size).unwrap_err().to_string();
    assert_eq!(
        message(3),
        "training.stage_0.batch_size: found 64, but 3 ranks must share it evenly; the nearest are 63 and 66"
    );
    assert!(message(100).ends_with("the nearest is 100"), "{}", message(100));
}
