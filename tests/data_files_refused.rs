//! Data files and settings that must be refused, each with a message that names the file and the key.

use dingo_spmd::data::{AsdDataset, WaveformDataset};
use dingo_spmd::gw::domain::UniformFrequencyDomain;
use dingo_spmd::settings::{DataSettings, DomainUpdate};
use hdf5_metno::{types::VarLenUnicode, File};
use num_complex::Complex64;
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// A copy of one of a case's files, to be damaged.
struct Copy {
    _folder: TempDir,
    path: PathBuf,
}

impl Copy {
    fn of(case: &str, name: &str) -> Copy {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        fs::copy(Path::new("tests/cases").join(case).join(name), &path).unwrap();
        Copy { _folder: folder, path }
    }

    fn change(self, change: impl Fn(&File) -> hdf5_metno::Result<()>) -> Copy {
        let file = File::open_rw(&self.path).unwrap();
        change(&file).unwrap();
        file.close().unwrap();
        self
    }

    fn with_settings(self, edit: impl Fn(&str) -> String) -> Copy {
        self.change(|file| {
            let text = file.attr("settings")?.read_scalar::<VarLenUnicode>()?;
            file.delete_attr("settings")?;
            let text: VarLenUnicode = edit(&text).parse().unwrap();
            file.new_attr::<VarLenUnicode>().create("settings")?.write_scalar(&text)
        })
    }

    /// The message with which the waveform dataset is refused, on disk and in memory alike.
    fn waveforms_refused(&self) -> String {
        let messages =
            [true, false].map(
                |on_disk| match WaveformDataset::open(&self.path, &data_settings(), on_disk) {
                    Ok(_) => panic!("{} was accepted", self.path.display()),
                    Err(error) => error.to_string(),
                },
            );
        assert_eq!(messages[0], messages[1]);
        assert!(
            messages[0].starts_with(&self.path.display().to_string()),
            "{}",
            messages[0]
        );
        messages[0].clone()
    }

    fn asds_refused(&self, detectors: &[&str], domain: &UniformFrequencyDomain) -> String {
        let detectors: Vec<String> = detectors.iter().map(|d| d.to_string()).collect();
        let message = AsdDataset::open(&self.path, &detectors, domain)
            .unwrap_err()
            .to_string();
        assert!(message.starts_with(&self.path.display().to_string()), "{message}");
        message
    }
}

fn data_settings() -> DataSettings {
    DataSettings {
        waveform_dataset_path: PathBuf::new(),
        train_fraction: 0.95,
        domain_update: None,
        svd_size_update: None,
        detectors: Vec::new(),
        extrinsic_prior: Default::default(),
        ref_time: 0.0,
        inference_parameters: Vec::new(),
        context_parameters: Vec::new(),
        random_strain_cropping: None,
        zero_noise: false,
        standardization: None,
    }
}

#[track_caller]
fn assert_says(message: &str, parts: &[&str]) {
    for part in parts {
        assert!(message.contains(part), "'{part}' is not in: {message}");
    }
}

#[test]
fn files_that_are_no_hdf5() {
    let copy = Copy::of("toy", "waveform_dataset.hdf5");
    let missing = Copy {
        path: copy.path.with_file_name("missing.hdf5"),
        _folder: tempfile::tempdir().unwrap(),
    };
    assert_says(&missing.waveforms_refused(), &["cannot be read", "No such file"]);
    let folder = Copy {
        path: copy.path.parent().unwrap().to_owned(),
        _folder: tempfile::tempdir().unwrap(),
    };
    assert_says(&folder.waveforms_refused(), &["is a folder"]);

    let length = fs::metadata(&copy.path).unwrap().len();
    for cut in [length - 1, length / 2, 4000, 100, 10] {
        fs::OpenOptions::new()
            .write(true)
            .open(&copy.path)
            .unwrap()
            .set_len(cut)
            .unwrap();
        assert_says(&copy.waveforms_refused(), &["truncated"]);
    }
    for text in ["", "chirp_mass,mass_ratio\n30,0.5\n"] {
        fs::write(&copy.path, text).unwrap();
        assert_says(&copy.waveforms_refused(), &["is not an HDF5 file"]);
    }
}

#[test]
fn groups_and_datasets_that_are_missing() {
    for (case, missing, parts) in [
        (
            "toy",
            "polarizations",
            ["group 'polarizations'", "parameters, polarizations_, version"],
        ),
        (
            "toy",
            "polarizations/h_cross",
            ["dataset 'h_cross' in 'polarizations'", "h_plus"],
        ),
        ("toy", "parameters", ["dataset 'parameters'", "polarizations, version"]),
        ("npe", "svd", ["group 'svd'", "parameters, polarizations"]),
        ("npe", "svd/V", ["dataset 'V' in 'svd'", "mismatches, s"]),
    ] {
        let copy = Copy::of(case, "waveform_dataset.hdf5").change(|file| match missing {
            "polarizations" => file.relink("polarizations", "polarizations_"),
            _ => file.unlink(missing),
        });
        assert_says(&copy.waveforms_refused(), &parts);
    }
    let copy = Copy::of("toy", "waveform_dataset.hdf5").change(|file| file.delete_attr("settings"));
    assert_says(&copy.waveforms_refused(), &["attribute 'settings'", "dataset_type"]);
}

#[test]
fn shapes_that_disagree() {
    let replaced = |case: &str, key: &'static str, shape: &'static [usize]| {
        Copy::of(case, "waveform_dataset.hdf5")
            .change(move |file| {
                file.unlink(key)?;
                let numbers = vec![Complex64::new(1.0, 0.0); shape.iter().product()];
                file.new_dataset::<Complex64>()
                    .shape(shape)
                    .create(key)?
                    .write_raw(&numbers)
            })
            .waveforms_refused()
    };
    let fewer_samples = replaced("toy", "polarizations/h_plus", &[239, 513]);
    assert_says(
        &fewer_samples,
        &["polarizations/h_plus", "[239, 513]", "[240, 513]", "parameters"],
    );
    let fewer_bins = replaced("toy", "polarizations/h_cross", &[240, 512]);
    assert_says(
        &fewer_bins,
        &["polarizations/h_cross", "[240, 512]", "bins of the domain"],
    );
    assert_says(
        &replaced("toy", "polarizations/h_plus", &[240]),
        &["polarizations/h_plus", "[240]", "two axes"],
    );
    assert_says(
        &replaced("npe", "svd/V", &[2048, 64]),
        &["svd/V", "[2048, 64]", "2049 bins"],
    );
    assert_says(
        &replaced("npe", "svd/V", &[2049, 63]),
        &["polarizations/h_plus", "[4096, 63]", "size of svd/V"],
    );

    let untitled = Copy::of("toy", "waveform_dataset.hdf5").change(|file| {
        file.unlink("parameters")?;
        file.new_dataset::<f64>()
            .shape([240])
            .create("parameters")?
            .write_raw(&[30.0; 240])
    });
    assert_says(
        &untitled.waveforms_refused(),
        &["parameters", "not a table of named columns"],
    );

    let real = Copy::of("toy", "waveform_dataset.hdf5").change(|file| {
        file.unlink("polarizations/h_plus")?;
        file.new_dataset::<f64>()
            .shape([240, 513])
            .create("polarizations/h_plus")?
            .write_raw(&vec![0.0; 240 * 513])
    });
    assert_says(
        &real.waveforms_refused(),
        &["polarizations/h_plus", "complex numbers are needed"],
    );
}

#[test]
fn waveforms_that_are_not_finite() {
    for (case, key, value) in [
        ("toy", "polarizations/h_plus", Complex64::new(f64::NAN, 0.0)),
        ("toy", "polarizations/h_cross", Complex64::new(0.0, f64::INFINITY)),
        ("npe", "polarizations/h_cross", Complex64::new(0.0, f64::NAN)),
        ("npe", "svd/V", Complex64::new(f64::NAN, 0.0)),
    ] {
        let copy = Copy::of(case, "waveform_dataset.hdf5").change(|file| {
            let dataset = file.dataset(key)?;
            let mut values = dataset.read_raw::<Complex64>()?;
            let columns = dataset.shape()[1];
            values[7 * columns + 40] = value;
            dataset.write_raw(&values)
        });
        let message = copy.waveforms_refused();
        match key {
            "svd/V" => assert_says(&message, &["svd/V", "NaN"]),
            _ => assert_says(&message, &[key, "sample 7", "column 40"]),
        }
    }
}

#[test]
fn settings_in_the_file_that_cannot_be_used() {
    type Edit = fn(&str) -> String;
    let cases: [(&str, Edit, &[&str]); 7] = [
        (
            "toy",
            |_| "{'domain': open('x')}".into(),
            &["settings", "Python", "character 11"],
        ),
        ("toy", |_| "[1, 2]".into(), &["settings", "not a Python dictionary"]),
        ("toy", |_| "{'num_samples': 3}".into(), &["settings.domain", "missing"]),
        (
            "toy",
            |text| text.replace("UniformFrequencyDomain", "TimeDomain"),
            &[
                "settings.domain.type",
                "TimeDomain",
                "not supported yet",
                "UniformFrequencyDomain",
            ],
        ),
        (
            "toy",
            |text| text.replace("'f_max': 128.0", "'f_max': 'high'"),
            &["settings.domain.f_max", "number"],
        ),
        (
            "npe",
            |text| text.replace("'whitening': 'aLIGO", "'whitening': 'bLIGO"),
            &[
                "settings.compression.whitening",
                "bLIGO_ZERO_DET_high_P_asd.txt",
                "aLIGO_ZERO_DET_high_P_asd.txt",
            ],
        ),
        (
            "npe",
            |text| {
                text.replace(
                    "'whitening': 'aLIGO_ZERO_DET_high_P_asd.txt'",
                    "'phase_heterodyning': {'order': 0}",
                )
            },
            &["settings.compression.phase_heterodyning", "not supported yet"],
        ),
    ];
    for (case, edit, parts) in cases {
        let copy = Copy::of(case, "waveform_dataset.hdf5").with_settings(edit);
        assert_says(&copy.waveforms_refused(), parts);
    }
}

#[test]
fn updates_that_the_data_cannot_follow() {
    let path = Path::new("tests/cases/npe/waveform_dataset.hdf5");
    let refused_with = |f_min, f_max, delta_f, svd_size_update| {
        let settings = DataSettings {
            domain_update: Some(DomainUpdate { f_min, f_max, delta_f }),
            svd_size_update,
            ..data_settings()
        };
        match WaveformDataset::open(path, &settings, true) {
            Ok(_) => panic!("{f_min:?}, {f_max:?}, {svd_size_update:?} was accepted"),
            Err(error) => error.to_string(),
        }
    };
    let refused = |f_min, f_max, svd_size_update| refused_with(f_min, f_max, Some(0.25), svd_size_update);
    let other_grid = refused_with(None, None, Some(0.125), None);
    assert_says(&other_grid, &["data.domain_update.delta_f: is 0.125", "0.25 Hz"]);
    assert_says(
        &refused(Some(10.0), None, None),
        &["data.domain_update", "[10, 512]", "[20, 512]"],
    );
    assert_says(&refused(None, Some(600.0), None), &["data.domain_update", "600", "512"]);
    assert_says(
        &refused(Some(25.1), None, None),
        &["data.domain_update", "f_min is 25.1", "0.25"],
    );
    assert_says(
        &refused(Some(50.0), Some(40.0), None),
        &["data.domain_update", "50", "40"],
    );
    assert_says(
        &refused(None, None, Some(65)),
        &["data.svd_size_update: is 65", "1 to 64"],
    );
    assert_says(
        &refused(None, None, Some(0)),
        &["data.svd_size_update: is 0", "1 to 64"],
    );
}

#[test]
fn asd_files_that_cannot_be_used() {
    let domain = UniformFrequencyDomain::new(20.0, 128.0, 0.25).unwrap();
    let copy = || Copy::of("toy", "asds.hdf5");
    assert_says(&copy().asds_refused(&["H1", "V1"], &domain), &["'V1'", "H1, L1"]);

    let coarser = UniformFrequencyDomain::new(20.0, 128.0, 0.5).unwrap();
    assert_says(&copy().asds_refused(&["H1"], &coarser), &["delta_f", "0.25", "0.5"]);
    let wider = UniformFrequencyDomain::new(20.0, 300.0, 0.25).unwrap();
    assert_says(&copy().asds_refused(&["H1"], &wider), &["[20, 300]", "[0, 256]"]);

    let without_group = copy().change(|file| file.unlink("asds"));
    assert_says(
        &without_group.asds_refused(&["H1"], &domain),
        &["group 'asds'", "gps_times"],
    );
    let without_settings = copy().change(|file| file.delete_attr("settings"));
    assert_says(
        &without_settings.asds_refused(&["H1"], &domain),
        &["attribute 'settings'"],
    );
    let fewer_bins = copy().change(|file| {
        file.unlink("asds/L1")?;
        file.new_dataset::<f64>()
            .shape([2, 1024])
            .create("asds/L1")?
            .write_raw(&vec![1e-23; 2048])
    });
    assert_says(
        &fewer_bins.asds_refused(&["H1", "L1"], &domain),
        &["asds/L1", "1024 bins", "1025"],
    );

    for (bin, value, frequency) in [
        (3, f64::NAN, "0.75 Hz"),
        (200, f64::NAN, "50 Hz"),
        (200, 0.0, "50 Hz"),
        (1000, f64::NAN, "250 Hz"),
    ] {
        let damaged = copy().change(|file| {
            let dataset = file.dataset("asds/H1")?;
            let mut values = dataset.read_raw::<f64>()?;
            values[2 * 1025 + bin] = value;
            dataset.write_raw(&values)
        });
        assert_says(
            &damaged.asds_refused(&["L1", "H1"], &domain),
            &["asds/H1", "ASD 2", frequency],
        );
    }
}
