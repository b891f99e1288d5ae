//! Every transform against Dingo's, with the values that Dingo drew; and what cannot be transformed.

use crate::cases::{cases, try_pipeline};
use dingo_spmd::data::{AsdDraws, DetectorNetwork, Draws};
use dingo_spmd::settings::DataSettings;
use std::collections::HashMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use tch::{IndexOp, Kind, Tensor};

/// What Dingo recorded of a case's transforms.
struct Recorded {
    arrays: HashMap<String, Tensor>,
    folder: PathBuf,
}

impl Recorded {
    fn new(case: &Path) -> Recorded {
        let arrays = Tensor::read_npz(case.join("transforms.npz"))
            .unwrap()
            .into_iter()
            .collect();
        Recorded {
            arrays,
            folder: case.to_path_buf(),
        }
    }

    /// An array by transform (without its number) and what follows it.
    fn get(&self, transform: &str, rest: &str) -> Option<&Tensor> {
        let wanted = |name: &&String| name.get(2..) == Some(&format!("_{transform}/{rest}"));
        self.arrays.keys().find(wanted).map(|name| &self.arrays[name])
    }

    fn expect(&self, transform: &str, rest: &str) -> &Tensor {
        let missing = || panic!("{}: no {transform}/{rest}", self.folder.display());
        self.get(transform, rest).unwrap_or_else(missing)
    }

    fn indices(&self) -> Vec<usize> {
        Vec::<i64>::try_from(&self.arrays["batch_indices"])
            .unwrap()
            .into_iter()
            .map(|i| i as usize)
            .collect()
    }

    /// The draws that Dingo made, without noise, which is not recorded.
    fn draws(&self, data: &DataSettings, detectors: &[String]) -> Draws {
        let values = |name: &str| {
            let rest = format!("extrinsic_parameters/{name}");
            Vec::<f64>::try_from(self.expect("SampleExtrinsicParameters", &rest).to_kind(Kind::Double)).unwrap()
        };
        let names = ["dec", "ra", "geocent_time", "psi", "luminosity_distance"];
        let others = data
            .extrinsic_prior
            .keys()
            .filter(|name| !names.contains(&name.as_str()));
        let names = names.into_iter().chain(others.map(String::as_str));
        let spectrum = |detector: &String, sample: i64| {
            let asds = self.expect("SampleNoiseASD", &format!("asds/{detector}"));
            Vec::<f32>::try_from(asds.get(sample)).unwrap()
        };
        let of_sample = |sample: usize| detectors.iter().map(|d| spectrum(d, sample as i64)).collect();
        Draws {
            extrinsic: names.map(|name| (name.to_string(), values(name))).collect(),
            asds: AsdDraws::Spectra((0..self.indices().len()).map(of_sample).collect()),
            noise: None,
            cropping: self.get("CropMaskStrainRandom", "waveform").map(kept_bins),
        }
    }
}

/// Where cropping left something: the channel 1e-23 / ASD has no zeros of its own.
pub fn kept_bins(cropped: &Tensor) -> Vec<Vec<Range<usize>>> {
    let (samples, detectors, _, _) = cropped.size4().unwrap();
    let kept = |sample, detector| {
        let channel = Vec::<f32>::try_from(cropped.i((sample, detector, 2))).unwrap();
        let first = channel.iter().position(|&x| x != 0.0).unwrap();
        let last = channel.iter().rposition(|&x| x != 0.0).unwrap();
        first..last + 1
    };
    (0..samples)
        .map(|sample| (0..detectors).map(|detector| kept(sample, detector)).collect())
        .collect()
}

/// Checks that ours is within 2e-5 of the reference's largest magnitude.
fn assert_close(what: &str, ours: &Tensor, reference: &Tensor) {
    assert_eq!(ours.size(), reference.size(), "{what}");
    let (ours, reference) = (ours.to_kind(Kind::Double), reference.to_kind(Kind::Double));
    let error = ((ours - &reference).abs().max() / reference.abs().max()).double_value(&[]);
    println!("{what}: {error:.1e}");
    assert!(error < 2e-5, "{what} differs by {error}");
}

#[test]
fn transforms_are_dingos() {
    for case in cases() {
        let (pipeline, data) = try_pipeline(&case, |_| ()).unwrap();
        let recorded = Recorded::new(&case);
        let indices = recorded.indices();
        let network = DetectorNetwork::new(&data.detectors, data.ref_time).unwrap();
        let detectors: Vec<String> = network.names().map(String::from).collect();
        let draws = recorded.draws(&data, &detectors);
        let what = |stage: &str| format!("{} {stage}", case.display());

        let ours = pipeline.intermediates(&indices, &draws).unwrap();
        for (d, name) in detectors.iter().enumerate() {
            let of_detector = |strain: &Tensor| strain.select(1, d as i64).view_as_real();
            let times = recorded.expect("GetDetectorTimes", &format!("extrinsic_parameters/{name}_time"));
            assert_close(&what("arrival times"), &ours.arrival_times.select(1, d as i64), times);
            let projected = recorded.expect("ProjectOntoDetectors", &format!("waveform/{name}"));
            assert_close(&what("projected strain"), &of_detector(&ours.projected), projected);
            let whitened = recorded.expect("WhitenAndScaleStrain", &format!("waveform/{name}"));
            assert_close(&what("whitened strain"), &of_detector(&ours.whitened), whitened);
        }

        let (theta, context) = pipeline.assemble(&indices, &draws).unwrap();
        let table = |name| recorded.get("SelectStandardizeRepackageParameters", name);
        assert_close(&what("theta"), &theta, table("inference_parameters").unwrap());
        if let Some(parameters) = table("context_parameters").filter(|_| !data.context_parameters.is_empty()) {
            assert_close(&what("context parameters"), &context[1], parameters);
        }
        assert_close(&what("network input"), &context[0], recorded.expect("UnpackDict", "1"));
        let uncropped = Draws {
            cropping: None,
            ..draws
        };
        let (_, context) = pipeline.assemble(&indices, &uncropped).unwrap();
        assert_close(
            &what("packed strain"),
            &context[0],
            recorded.expect("RepackageStrainsAndASDS", "waveform"),
        );
    }
}

#[test]
fn standardization_is_dingos() {
    for case in cases() {
        let (pipeline, data) = try_pipeline(&case, |data| data.standardization = None).unwrap();
        let text = std::fs::read_to_string(case.join("transforms.json")).unwrap();
        let reference = &serde_json::from_str::<serde_json::Value>(&text).unwrap()["standardization"];
        let ours = pipeline.standardization();
        let selected: Vec<&String> = data
            .inference_parameters
            .iter()
            .chain(&data.context_parameters)
            .collect();
        assert!(ours.mean.keys().eq(selected.iter().copied()) && ours.std.keys().eq(selected.iter().copied()));
        for name in selected {
            let of = |what: &str| reference[what][name.as_str()].as_f64().unwrap();
            let (mean, std) = (of("mean"), of("std"));
            // Arrival times, and priors without analytic moments, are known to Dingo from 50,000 draws or so.
            let sampled = name.ends_with("_time") && name != "geocent_time"
                || data
                    .extrinsic_prior
                    .get(name)
                    .is_some_and(|prior| prior != "default" && !prior.contains("Uniform("));
            let tolerance = if sampled { 0.02 } else { 1e-6 };
            let what = format!("{} {name}", case.display());
            assert!(
                (ours.std[name] / std - 1.0).abs() < tolerance,
                "{what}: std {} not {std}",
                ours.std[name]
            );
            assert!(
                (ours.mean[name] - mean).abs() < tolerance * std,
                "{what}: mean {} not {mean}",
                ours.mean[name]
            );
        }
    }
}

#[test]
fn parameters_that_cannot_be_used_are_errors() {
    let case = Path::new("tests/cases/npe");
    let message = |change: fn(&mut DataSettings)| match try_pipeline(case, change) {
        Ok(_) => panic!("accepted"),
        Err(error) => error.to_string(),
    };
    let missing = message(|data| data.inference_parameters.push("eccentricity".into()));
    assert!(
        missing.starts_with("data.inference_parameters: ") && missing.contains("\"eccentricity\""),
        "{missing}"
    );
    assert!(
        missing.contains("chirp_mass") && missing.contains("H1_time"),
        "{missing}"
    );
    let fixed = message(|data| {
        data.extrinsic_prior.insert("psi".into(), "0.3".into());
    });
    assert!(
        fixed.starts_with("data.inference_parameters: ") && fixed.contains("psi has zero spread"),
        "{fixed}"
    );
    let both = message(|data| {
        data.extrinsic_prior
            .insert("chirp_mass".into(), "Uniform(20.0, 30.0)".into());
    });
    assert!(both.starts_with("data.extrinsic_prior.chirp_mass: "), "{both}");
    let prior = message(|data| {
        data.extrinsic_prior.insert("ra".into(), "Unform(0, 1)".into());
    });
    assert!(prior.starts_with("data.extrinsic_prior.ra: "), "{prior}");
    let incomplete = message(|data| {
        let reference: serde_json::Value =
            serde_json::from_str(&std::fs::read_to_string("tests/cases/npe/transforms.json").unwrap()).unwrap();
        let read = |what: &str| {
            let values = reference["standardization"][what].as_object().unwrap().iter();
            values
                .map(|(name, value)| (name.clone(), value.as_f64().unwrap()))
                .collect()
        };
        let mut given = dingo_spmd::settings::Standardization {
            mean: read("mean"),
            std: read("std"),
        };
        given.std.shift_remove("psi");
        data.standardization = Some(given);
    });
    assert!(
        incomplete.starts_with("data.standardization.std: ") && incomplete.contains("psi"),
        "{incomplete}"
    );
}

/// A detector's arrival time can be inferred too; its moments follow from the sky and the geocenter's time.
#[test]
fn arrival_times_can_be_parameters() {
    let add = |data: &mut DataSettings| data.context_parameters.push("L1_time".into());
    let (pipeline, _) = try_pipeline(Path::new("tests/cases/npe"), add).unwrap();
    let standardization = pipeline.standardization();
    // Uniform within 0.1 s, plus the projection of a vector of about 21 ms onto a random direction.
    let expected = (0.1f64.powi(2) / 3.0 + 0.0212f64.powi(2) / 3.0).sqrt();
    assert!(
        (standardization.std["L1_time"] / expected - 1.0).abs() < 0.05,
        "{standardization:?}"
    );
    let (_, context) = pipeline.batch(&(0..2000).collect::<Vec<_>>(), 0).unwrap();
    assert_eq!(context[1].size(), [2000, 1]);
    let std = context[1].std(true).double_value(&[]);
    assert!((std - 1.0).abs() < 0.05, "{std}");
}
