//! A page about an HDF5 file.

use super::super::text::Page;
use crate::data::{ArraySummary, FileSummary};
use std::path::Path;

/// Where a model's weights are; too many to be listed unless they are asked for.
const WEIGHTS: &str = "model_weights/";

pub(super) fn page(path: &Path, file: &FileSummary, tensors: bool) -> String {
    let mut page = Page::new(&path.display().to_string());
    page.fields([
        ("kind", kind(file)),
        ("Dingo version", file.version.clone().unwrap_or("not recorded".into())),
    ]);
    page.table(
        file.attributes
            .iter()
            .map(|(name, value)| [format!("{name}:"), value.clone()]),
    );

    page.section("Arrays");
    let (weights, others): (Vec<_>, Vec<_>) = file.arrays.iter().partition(|array| array.path.starts_with(WEIGHTS));
    page.table(others.iter().map(|array| row(array)));
    if !weights.is_empty() {
        let numbers: usize = weights.iter().map(|array| array.shape.iter().product::<usize>()).sum();
        page.line(&format!("{WEIGHTS}: {} tensors of {numbers} numbers", weights.len()));
        if tensors {
            page.table(weights.iter().map(|array| row(array)));
        }
    }
    if !file.gps_times.is_empty() {
        page.section("GPS times (least, greatest)");
        let times = file.gps_times.iter();
        page.table(
            times.map(|(detector, [least, greatest])| [detector.clone(), least.to_string(), greatest.to_string()]),
        );
    }
    for (name, dictionary) in &file.dictionaries {
        page.section(&capitalized(name));
        page.yaml(dictionary);
    }
    if !file.mismatches.is_empty() {
        page.section("SVD validation summary");
        file.mismatches.iter().for_each(|text| page.line(text));
    }
    page.into_text()
}

/// In words, with the number that tells the size.
fn kind(file: &FileSummary) -> String {
    let length = |path: &str, axis: usize| {
        let array = file.arrays.iter().find(|array| array.path == path);
        array.and_then(|array| array.shape.get(axis).copied()).unwrap_or(0)
    };
    match file.dataset_type.as_deref() {
        Some("waveform_dataset") => format!("waveform dataset of {} samples", length("parameters", 0)),
        Some("svd_basis") => format!("SVD basis of size {}", length("V", 1)),
        Some("asd_dataset") => {
            let asds = file.arrays.iter().filter(|array| array.path.starts_with("asds/"));
            let counts = asds.map(|array| {
                let detector = array.path.trim_start_matches("asds/");
                format!("{detector}: {}", array.shape.first().copied().unwrap_or(0))
            });
            format!("ASD dataset ({})", counts.collect::<Vec<_>>().join(", "))
        }
        Some("trained_model") => "trained model".into(),
        Some(other) => other.to_owned(),
        None => "not recorded".into(),
    }
}

fn row(array: &ArraySummary) -> [String; 4] {
    let shape: Vec<String> = array.shape.iter().map(usize::to_string).collect();
    let shape = format!("[{}]", shape.join(", "));
    [
        array.path.clone(),
        shape,
        array.element.clone(),
        array.columns.join(", "),
    ]
}

fn capitalized(name: &str) -> String {
    let mut letters = name.chars();
    letters
        .next()
        .map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}
