//! Dingo's data files, read and compared with what Dingo reads from them, and files that must be refused.

use dingo_spmd::data::{train_test_split, AsdDataset, WaveformDataset};
use dingo_spmd::gw::noise_curve::NoiseCurve;
use dingo_spmd::settings::{DataSettings, DomainUpdate};
use hdf5_metno::types::VarLenUnicode;
use num_complex::{Complex32, Complex64};
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
        delta_f: None,
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

/// A copy of the `toy` dataset, changed.
fn toy_rewritten(change: impl Fn(&hdf5_metno::File) -> hdf5_metno::Result<()>) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("waveform_dataset.hdf5");
    std::fs::copy("tests/cases/toy/waveform_dataset.hdf5", &path).unwrap();
    let file = hdf5_metno::File::open_rw(&path).unwrap();
    change(&file).unwrap();
    file.close().unwrap();
    (folder, path)
}

fn rewrite_polarizations(
    file: &hdf5_metno::File,
    write: impl Fn(&str, &[Complex64]) -> hdf5_metno::Result<()>,
) -> hdf5_metno::Result<()> {
    for key in ["polarizations/h_plus", "polarizations/h_cross"] {
        let values = file.dataset(key)?.read_raw::<Complex64>()?;
        file.unlink(key)?;
        write(key, &values)?;
    }
    Ok(())
}

#[test]
fn types_and_layouts_do_not_matter() {
    let shape = [240, 513];
    let single = toy_rewritten(|file| {
        rewrite_polarizations(file, |key, values| {
            let values: Vec<Complex32> = values
                .iter()
                .map(|z| Complex32::new(z.re as f32, z.im as f32))
                .collect();
            file.new_dataset::<Complex32>()
                .shape(shape)
                .create(key)?
                .write_raw(&values)
        })
    });
    let chunked = toy_rewritten(|file| {
        rewrite_polarizations(file, |key, values| {
            let builder = file.new_dataset::<Complex64>().chunk([16, 100]).deflate(4).shape(shape);
            builder.create(key)?.write_raw(values)
        })
    });
    let all: Vec<usize> = (0..240).rev().collect();
    let update = DomainUpdate {
        f_min: Some(30.0),
        f_max: Some(100.0),
        delta_f: None,
    };
    let settings = data_settings(Some(update), None);
    let original = WaveformDataset::open(Path::new("tests/cases/toy/waveform_dataset.hdf5"), &settings, true).unwrap();
    let expected = original.polarizations(&all).unwrap();
    assert_eq!(expected.plus.size(), [240, 401]);
    assert_eq!(expected.plus.narrow(1, 0, 120).abs().max().double_value(&[]), 0.0);
    for (_folder, path) in [single, chunked] {
        for on_disk in [true, false] {
            let dataset = WaveformDataset::open(&path, &settings, on_disk).unwrap();
            let polarizations = dataset.polarizations(&all).unwrap();
            assert_eq!(polarizations.plus, expected.plus);
            assert_eq!(polarizations.cross, expected.cross);
        }
    }
}

#[test]
fn parameters_of_any_number_type_are_read() {
    #[derive(hdf5_metno::H5Type, Clone)]
    #[repr(C)]
    struct Row {
        chirp_mass: f32,
        label: hdf5_metno::types::FixedAscii<4>,
        count: i16,
        mass_ratio: f64,
    }
    let (_folder, path) = toy_rewritten(|file| {
        file.unlink("parameters")?;
        let label = hdf5_metno::types::FixedAscii::from_ascii("abc").unwrap();
        let row = |i: i16| Row {
            chirp_mass: 1.1 * f32::from(i),
            label,
            count: -i,
            mass_ratio: 0.1 * f64::from(i),
        };
        let rows: Vec<Row> = (0..240).map(row).collect();
        file.new_dataset::<Row>()
            .shape([240])
            .create("parameters")?
            .write_raw(&rows)
    });
    let dataset = WaveformDataset::open(&path, &data_settings(None, None), true).unwrap();
    assert_eq!(dataset.parameter_names(), ["chirp_mass", "count", "mass_ratio"]);
    let value = |name: &str| dataset.parameter(name).unwrap()[3];
    assert_eq!(value("chirp_mass"), f64::from(1.1f32 * 3.0));
    assert_eq!(value("count"), -3.0);
    assert_eq!(
        value("mass_ratio"),
        f64::from((0.1f64 * 3.0) as f32),
        "rounded to single precision"
    );
    assert!(dataset.parameter("label").is_none());
}

#[test]
fn whitening_without_an_svd_is_undone() {
    let settings = data_settings(None, None);
    let open = |path: &Path| WaveformDataset::open(path, &settings, true).unwrap();
    let original = open(Path::new("tests/cases/toy/waveform_dataset.hdf5"));
    let curve = NoiseCurve::by_file_name("aLIGO_ZERO_DET_high_P_asd.txt").unwrap();
    let asd = curve.on_domain(original.domain()).unwrap();
    let (_folder, path) = toy_rewritten(|file| {
        rewrite_polarizations(file, |key, values| {
            let whitened: Vec<Complex64> = values.iter().zip(asd.iter().cycle()).map(|(z, asd)| z / asd).collect();
            file.new_dataset::<Complex64>()
                .shape([240, 513])
                .create(key)?
                .write_raw(&whitened)
        })?;
        let text = file.attr("settings")?.read_scalar::<VarLenUnicode>()?;
        let text = text.replace(
            "'compression': 'None'",
            "'compression': {'whitening': 'aLIGO_ZERO_DET_high_P_asd.txt'}",
        );
        file.delete_attr("settings")?;
        let text: VarLenUnicode = text.parse().unwrap();
        file.new_attr::<VarLenUnicode>().create("settings")?.write_scalar(&text)
    });
    let expected = original.polarizations(&[5, 2]).unwrap().plus.view_as_real();
    let ours = open(&path).polarizations(&[5, 2]).unwrap().plus.view_as_real();
    assert!(difference(&ours, &expected) < 1e-6);
}

#[test]
fn many_threads_read_the_same_batches() {
    let case = Path::new("tests/cases/npe");
    let dataset = WaveformDataset::open(&case.join("waveform_dataset.hdf5"), &settings_of_case(case), true).unwrap();
    let batch = |seed: usize| -> Vec<usize> { (0..64).map(|i| (i * 61 + seed * 17) % 4096).collect() };
    let expected: Vec<Tensor> = (0..8)
        .map(|seed| dataset.polarizations(&batch(seed)).unwrap().cross)
        .collect();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let (dataset, expected) = (&dataset, expected.iter().map(Tensor::shallow_clone).collect::<Vec<_>>());
            scope.spawn(move || {
                for (seed, expected) in expected.iter().enumerate() {
                    assert_eq!(dataset.polarizations(&batch(seed)).unwrap().cross, *expected);
                }
            });
        }
    });
    assert!(dataset
        .polarizations(&[4096])
        .unwrap_err()
        .to_string()
        .contains("sample 4096"));
    assert_eq!(dataset.polarizations(&[]).unwrap().plus.size(), [0, 1601]);
}
