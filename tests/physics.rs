//! `tests/cases/physics.json`, and that of the folder `DINGO_CASES` if there is one: detectors, sidereal times and priors
//! as bilby and LAL compute them.

use dingo_spmd::gw::detector::Detector;
use dingo_spmd::gw::prior::Prior;
use dingo_spmd::gw::time::greenwich_mean_sidereal_time;
use serde_json::Value;
use std::path::Path;

/// The reference files, parsed.
fn references() -> Vec<Value> {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases/physics.json");
    let further = std::env::var_os("DINGO_CASES").map(|folder| Path::new(&folder).join("physics.json"));
    let paths = std::iter::once(own).chain(further.filter(|path| path.exists()));
    paths
        .map(|path| parse(&std::fs::read_to_string(path).unwrap()))
        .collect()
}

/// Parses what Python's json wrote: it leaves infinities bare, which JSON does not know.
fn parse(text: &str) -> Value {
    serde_json::from_str(&text.replace("-Infinity", "\"-inf\"").replace(" Infinity", " \"inf\"")).unwrap()
}

/// All entries of a list, of all references.
fn entries(key: &str) -> Vec<Value> {
    let lists = references()
        .into_iter()
        .map(|reference| reference[key].as_array().unwrap().clone());
    let entries: Vec<Value> = lists.flatten().collect();
    assert!(!entries.is_empty());
    entries
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap()
}

fn number(value: &Value) -> f64 {
    match value {
        Value::String(text) => text.parse().unwrap(),
        _ => value.as_f64().unwrap(),
    }
}

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(number).collect()
}

fn assert_close(what: &str, value: f64, expected: f64, tolerance: f64) {
    assert!(
        (value - expected).abs() <= tolerance,
        "{what}: {value}, expected {expected} within {tolerance}"
    );
}

#[test]
fn sidereal_times_are_lals() {
    for entry in entries("detector_response") {
        let gps = number(&entry["gps"]);
        assert_close(
            &format!("GPS {gps}"),
            greenwich_mean_sidereal_time(gps),
            number(&entry["gmst"]),
            1e-8,
        );
    }
}

#[test]
fn detectors_stand_where_bilby_puts_them() {
    let references = references();
    for (name, expected) in references
        .iter()
        .flat_map(|reference| reference["detectors"].as_object().unwrap())
    {
        let detector = Detector::by_name(name).unwrap();
        assert_eq!(&detector.name, name);
        for (i, expected) in numbers(&expected["vertex"]).into_iter().enumerate() {
            assert_close(&format!("vertex of {name}"), detector.vertex[i], expected, 1e-6);
        }
        for (i, row) in expected["tensor"].as_array().unwrap().iter().enumerate() {
            for (j, expected) in numbers(row).into_iter().enumerate() {
                assert_close(&format!("tensor of {name}"), detector.tensor[i][j], expected, 1e-12);
            }
        }
    }
}

#[test]
fn antenna_patterns_and_time_delays_are_bilbys() {
    for entry in entries("detector_response") {
        let name = text(&entry["detector"]);
        let detector = Detector::by_name(name).unwrap();
        let [gps, ra, dec, psi] = ["gps", "ra", "dec", "psi"].map(|key| number(&entry[key]));
        let gmst = greenwich_mean_sidereal_time(gps);
        let (plus, cross) = detector.antenna_pattern(ra, dec, psi, gmst);
        let what = format!("{name} at GPS {gps}, ra {ra}, dec {dec}, psi {psi}");
        assert_close(&format!("plus, {what}"), plus, number(&entry["plus"]), 1e-7);
        assert_close(&format!("cross, {what}"), cross, number(&entry["cross"]), 1e-7);
        let delay = detector.time_delay_from_geocenter(ra, dec, gmst);
        assert_close(
            &format!("time delay, {what}"),
            delay,
            number(&entry["time_delay"]),
            1e-9,
        );
    }
}

/// The tolerance at which a prior's `rescale` must agree with bilby's, for a value of bilby's.
fn rescale_tolerance(expression: &str, prior: &Prior, expected: f64) -> f64 {
    let (minimum, maximum) = prior.bounds();
    let width = match (maximum - minimum).is_finite() {
        true => maximum - minimum,
        // The unbounded ones are normal distributions: sigma is the distance of two quantiles.
        false => prior.rescale(0.841_344_746_068_543) - prior.rescale(0.5),
    };
    if expression.contains("UniformComovingVolume") || expression.contains("UniformSourceFrame") {
        1e-4 * expected
    } else if expression.contains("AlignedSpin") {
        1e-5 * width
    } else {
        1e-6 * width
    }
}

#[test]
fn priors_rescale_as_bilbys() {
    for entry in entries("priors") {
        let expression = text(&entry["expression"]);
        let prior = Prior::parse("parameter", expression).unwrap();
        let (minimum, maximum) = prior.bounds();
        for (bound, key) in [(minimum, "minimum"), (maximum, "maximum")] {
            let expected = number(&entry[key]);
            assert!(
                bound == expected || (bound - expected).abs() < 1e-12,
                "{key} of {expression}: {bound}"
            );
        }
        let (u, rescaled) = (numbers(&entry["u"]), numbers(&entry["rescale"]));
        assert_eq!(u.len(), rescaled.len());
        for (&u, &expected) in u.iter().zip(&rescaled) {
            let tolerance = rescale_tolerance(expression, &prior, expected);
            assert_close(&format!("{expression} at {u}"), prior.rescale(u), expected, tolerance);
        }
    }
}
