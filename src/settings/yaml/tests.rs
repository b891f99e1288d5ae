//! Against what PyYAML gave (6.0.4), stored in `tests/settings`.

use super::*;
use crate::settings::Value;

fn stored(name: &str) -> String {
    let path = format!("{}/tests/settings/{name}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Kind and value of a scalar as the file of PyYAML's answers spells them.
fn described(value: &Value) -> (&'static str, String) {
    match value {
        Value::Null => ("null", String::new()),
        Value::Bool(flag) => ("bool", flag.to_string()),
        Value::Number(number) if number.is_f64() => ("float", float_text(number.as_f64().unwrap())),
        Value::Number(number) => ("int", number.to_string()),
        Value::String(text) => ("str", text.clone()),
        other => panic!("not a scalar: {other:?}"),
    }
}

#[test]
fn plain_scalars_are_what_pyyaml_makes_of_them() {
    let rows: Vec<(String, String, String)> = serde_json::from_str(&stored("yaml11_scalars.json")).unwrap();
    assert!(rows.len() > 100);
    for (text, kind, expected) in rows {
        let (found_kind, found) = described(&read(&format!("k: {text}")).unwrap().value["k"]);
        // Numbers beyond 64 bits are floats here; Python's integers have no bound.
        assert_eq!(found_kind, kind, "{text}");
        match kind.as_str() {
            "float" => {
                let python: f64 = expected.parse().unwrap();
                let ours = read(&format!("k: {text}")).unwrap().value["k"].as_f64().unwrap();
                assert!(
                    ours == python || (ours.is_nan() && python.is_nan()),
                    "{text}: {ours} instead of {python}"
                );
            }
            _ => assert_eq!(found, expected, "{text}"),
        }
    }
}

#[test]
fn a_document_is_what_pyyaml_makes_of_it() {
    let document = read(&stored("yaml11.yaml")).unwrap();
    let expected: Value = serde_json::from_str(&stored("yaml11.json")).unwrap();
    for (key, expected) in expected.as_mapping().unwrap() {
        assert_eq!(document.value[key], *expected, "{key:?}");
    }
    assert_eq!(document.line("merged.lr"), Some(35));
    assert_eq!(document.line("merged.not_there"), document.line("merged"));
}

#[test]
fn floats_are_written_as_python_writes_them() {
    let written = [
        (1e-4, "0.0001"),
        (1e-5, "1.0e-05"),
        (5e-5, "5.0e-05"),
        (1.5e-7, "1.5e-07"),
        (1e15, "1000000000000000.0"),
        (1e16, "1.0e+16"),
        (-2.5e-10, "-2.5e-10"),
        (9.999e-5, "9.999e-05"),
        (1e300, "1.0e+300"),
        (3.0, "3.0"),
        (0.0, "0.0"),
        (f64::NEG_INFINITY, "-.inf"),
    ];
    for (x, text) in written {
        assert_eq!(float_text(x), text);
    }
}

#[test]
fn what_is_written_reads_back_the_same() {
    let awkward = [
        "yes",
        "1e-4",
        "1.0e-4",
        "",
        " padded ",
        "null",
        "0x10",
        "a: b",
        "a #b",
        "#a",
        "- a",
        "-",
        "it's",
        "\"q\"",
        "é",
        "two\nlines",
        "tab\t",
        "colon:",
        "[x]",
        "{x",
        "*a",
        "&a",
        "!a",
        "%a",
        "@a",
        "`a",
        "key: |",
        "1:30",
        ".5",
        "<<",
        "=",
        "bilby.core.prior.Uniform(minimum=-0.1, maximum=0.1, name='ra')",
        "\u{85}",
        "back\\slash",
        "? a",
        "---",
        "...",
        "~",
    ];
    let texts = Value::Sequence(awkward.iter().map(|text| Value::from(*text)).collect());
    let document = read(&stored("yaml11.yaml")).unwrap().value;
    let nested = read("a:\n- - 1\n  - b: {c: []}\n    d: 2\n- {}\ne: {f: {g: 1.0e-05}}\n")
        .unwrap()
        .value;
    for value in [
        texts,
        document,
        nested,
        Value::Null,
        Value::from(1.0e-5),
        Value::Sequence(vec![]),
    ] {
        let text = write(&value);
        assert_eq!(
            read(&text).unwrap_or_else(|error| panic!("{error} in\n{text}")).value,
            value,
            "{text}"
        );
    }
}

#[test]
fn the_layout_is_that_of_pyyaml() {
    let text =
        "device: cpu\nnum_workers: 0\nruntime_limits:\n  max_time_per_run: 3600000\n  max_epochs_per_run: null\n\
        condor:\n  extra_submit_lines:\n  - a\n  - b: 1\n    c: 2\nlr: 1.0e-05\n";
    assert_eq!(write(&read(text).unwrap().value), text);
}

#[test]
fn mistakes_are_told_with_line_and_column() {
    let mistakes = [
        ("a: 1\nb: 2\na: 3\n", 3, 1, "`a` stands here twice (first on line 1)"),
        (
            "s:\n  x: 1\n  y: 2\n  x: 3\n",
            4,
            3,
            "`s.x` stands here twice (first on line 2)",
        ),
        ("a: [1, 2\nb: 3\n", 2, 2, "not YAML"),
        ("a: 'open\n", 2, 1, "unexpected end of stream"),
        ("a: 1\n  b: 2\n", 2, 4, "not YAML"),
        ("a: b: c\n", 1, 5, "not YAML"),
        ("a: *nowhere\n", 1, 4, "*nowhere stands for nothing"),
        ("a: !!python/object:os.system x\n", 1, 4, "the tag"),
        ("a: 1\n---\nb: 2\n", 2, 1, "a second document"),
        ("a: &a [*a]\n", 1, 8, "*a stands for nothing read before"),
        ("? [a]\n: 1\n", 1, 3, "cannot be a key"),
        ("<<: 3\n", 1, 1, "`<<` needs a section"),
        ("a: !!int x\n", 1, 4, "is not what its tag"),
    ];
    for (text, line, column, message) in mistakes {
        let error = read(text).expect_err(text);
        assert!(error.message.contains(message), "{text}: {error}");
        assert_eq!((error.line, error.column), (line, column), "{text}: {error}");
    }
}

#[test]
fn aliases_cannot_blow_up() {
    let mut text = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for n in 1..12 {
        let alias = format!("*a{}", n - 1);
        text += &format!("a{n}: &a{n} [{}]\n", [alias.as_str(); 10].join(", "));
    }
    assert!(read(&text).unwrap_err().message.contains("too large"));
    assert!(read(&("a: ".to_string() + &"[".repeat(10_000))).is_err());
}
