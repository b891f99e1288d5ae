//! Dingo's data files, read and compared with what Dingo reads from them, and files that must be refused.

use dingo_spmd::data::{train_test_split, AsdDataset, WaveformDataset};
use dingo_spmd::settings::{DataSettings, DomainUpdate};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use tch::{Kind, Tensor};

/// The cases in the repository, and those in the folder that DINGO_CASES names, if they are of a kind that is supported.
fn cases() -> Vec<PathBuf> {
    let mut cases: Vec<PathBuf> = ["npe", "toy"].map(|name| Path::new("tests/cases").join(name)).into();
    if let Some(folder) = std::env::var_os("DINGO_CASES") {
        let more = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        cases.extend(more.filter(|case| case.join("transforms.npz").exists() && !is_multibanded(case)));
    }
    cases
}

fn is_multibanded(case: &Path) -> bool {
    let text = std::fs::read_to_string(case.join("transforms.json")).unwrap();
    text.contains("MultibandedFrequencyDomain")
}

/// The keys of the data section that the files' readers look at.
fn data_settings(domain_update: Option<DomainUpdate>, svd_size_update: Option<usize>) -> DataSettings {
    DataSettings {
        waveform_dataset_path: PathBuf::new(),
        train_fraction: 0.95,
        domain_update,
        svd_size_update,
        detectors: vec!["H1".into(), "L1".into()],
        extrinsic_prior: Default::default(),
        ref_time: 0.0,
        inference_parameters: Vec::new(),
        context_parameters: Vec::new(),
        random_strain_cropping: None,
        zero_noise: false,
        standardization: None,
    }
}

fn settings_of_case(case: &Path) -> DataSettings {
    let text = std::fs::read_to_string(case.join("train_settings.yaml")).unwrap();
    let data = &serde_yaml::from_str::<serde_yaml::Value>(&text).unwrap()["data"];
    let update = data.get("domain_update").map(|update| DomainUpdate {
        f_min: update["f_min"].as_f64(),
        f_max: update["f_max"].as_f64(),
    });
    let mut settings = data_settings(
        update,
        data.get("svd_size_update").and_then(|s| s.as_u64()).map(|s| s as usize),
    );
    let detectors = data["detectors"].as_sequence().unwrap().iter();
    settings.detectors = detectors.map(|d| d.as_str().unwrap().to_owned()).collect();
    settings.train_fraction = data["train_fraction"].as_f64().unwrap();
    settings
}

fn recorded(case: &Path) -> HashMap<String, Tensor> {
    Tensor::read_npz(case.join("transforms.npz"))
        .unwrap()
        .into_iter()
        .collect()
}

fn indices(tensor: &Tensor) -> Vec<usize> {
    Vec::<i64>::try_from(tensor)
        .unwrap()
        .into_iter()
        .map(|i| i as usize)
        .collect()
}

/// Largest difference, relative to the largest magnitude of the reference.
fn difference(ours: &Tensor, reference: &Tensor) -> f64 {
    assert_eq!(ours.size(), reference.size());
    let (ours, reference) = (ours.to_kind(Kind::Double), reference.to_kind(Kind::Double));
    ((ours - &reference).abs().max() / reference.abs().max()).double_value(&[])
}

#[test]
fn polarizations_are_dingos() {
    for case in cases() {
        let reference = recorded(&case);
        let batch = indices(&reference["batch_indices"]);
        for on_disk in [true, false] {
            let path = case.join("waveform_dataset.hdf5");
            let dataset = WaveformDataset::open(&path, &settings_of_case(&case), on_disk).unwrap();
            let polarizations = dataset.polarizations(&batch).unwrap();
            for (name, ours) in [("h_plus", polarizations.plus), ("h_cross", polarizations.cross)] {
                let reference = &reference[&format!("00_polarizations/waveform/{name}")];
                let error = difference(&ours.view_as_real(), reference);
                assert!(error < 2e-5, "{}: {name} differs by {error}", case.display());
            }
            for name in dataset.parameter_names() {
                let all = dataset.parameter(name).unwrap();
                let ours: Vec<f64> = batch.iter().map(|&sample| all[sample]).collect();
                let reference = &reference[&format!("00_polarizations/parameters/{name}")];
                let reference = Vec::<f64>::try_from(reference.to_kind(Kind::Double)).unwrap();
                assert_eq!(ours, reference, "{}: {name}", case.display());
            }
        }
    }
}

#[test]
fn domain_and_settings_are_dingos() {
    let case = Path::new("tests/cases/npe");
    let dataset = WaveformDataset::open(&case.join("waveform_dataset.hdf5"), &settings_of_case(case), true).unwrap();
    let domain = dataset.domain();
    assert_eq!((domain.f_min, domain.f_max, domain.delta_f), (25.0, 400.0, 0.25));
    assert_eq!(
        (dataset.len(), domain.num_bins(), domain.min_index()),
        (4096, 1601, 100)
    );
    let settings = dataset.settings();
    assert_eq!(
        settings["domain"]["f_min"].as_f64(),
        Some(20.0),
        "as stored, whatever domain_update says"
    );
    assert_eq!(settings["num_samples"].as_u64(), Some(4096));
    assert_eq!(settings["compression"]["svd"]["size"].as_u64(), Some(64));
}

#[test]
fn split_is_dingos() {
    for case in cases() {
        let settings = settings_of_case(&case);
        let reference = recorded(&case);
        let (train, test) = (
            indices(&reference["train_indices"]),
            indices(&reference["test_indices"]),
        );
        let split = train_test_split(train.len() + test.len(), settings.train_fraction);
        assert_eq!(split.train, train, "{}", case.display());
        assert_eq!(split.test, test, "{}", case.display());
    }
}

#[test]
fn asds_are_dingos() {
    for case in cases() {
        let settings = settings_of_case(&case);
        let dataset = WaveformDataset::open(&case.join("waveform_dataset.hdf5"), &settings, true).unwrap();
        let asds = AsdDataset::open(&case.join("asds.hdf5"), &settings.detectors, dataset.domain()).unwrap();
        let reference = recorded(&case);
        let key = reference
            .keys()
            .find(|key| key.contains("SampleNoiseASD/asds/"))
            .unwrap();
        let prefix = key.rsplit_once('/').unwrap().0.to_owned();
        for (d, detector) in settings.detectors.iter().enumerate() {
            let drawn = &reference[&format!("{prefix}/{detector}")];
            for sample in 0..drawn.size()[0] {
                let drawn: Vec<f32> = drawn.get(sample).try_into().unwrap();
                let found = (0..asds.num_asds(d)).any(|i| asds.asd(d, i) == drawn);
                assert!(found, "{}: {detector}: sample {sample}", case.display());
            }
        }
    }
}
