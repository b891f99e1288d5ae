//! The samples that the pipeline makes with its own draws, and how fast.

use crate::cases::{pipeline, try_pipeline};
use crate::transforms::kept_bins;
use dingo_spmd::data::{throughput, Draws, Pipeline};
use dingo_spmd::settings::{DataSettings, StrainCropping};
use dingo_spmd::torch_ext::threads::limit_this_thread;
use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;
use tch::{Kind, Tensor};

/// The noise has unit variance in every channel, is independent between detectors and samples, and new each epoch.
#[test]
fn noise_is_white_and_zero_noise_turns_it_off() {
    let case = Path::new("tests/cases/npe");
    let (noisy, _) = try_pipeline(case, |_| ()).unwrap();
    let (quiet, _) = try_pipeline(case, |data| data.zero_noise = true).unwrap();
    let indices: Vec<usize> = (100..164).collect();
    let strain = |pipeline: &Pipeline, epoch| pipeline.batch(&indices, epoch).unwrap().1.remove(0);
    let noise = |epoch| (strain(&noisy, epoch) - strain(&quiet, epoch)).narrow(2, 0, 2);
    let (first, second) = (noise(0), noise(1));
    let count = first.numel() as f64;
    let mean = |x: Tensor| x.to_kind(Kind::Double).mean(Kind::Double).double_value(&[]);
    assert!((mean(&first * &first) - 1.0).abs() < 5.0 * (2.0 / count).sqrt());
    assert!(mean(first.shallow_clone()).abs() < 5.0 / count.sqrt());
    let uncorrelated = |x: Tensor, y: Tensor| mean(x * y).abs() < 5.0 / (count / 2.0).sqrt();
    assert!(uncorrelated(first.select(1, 0), first.select(1, 1)), "detectors");
    assert!(
        uncorrelated(first.select(2, 0), first.select(2, 1)),
        "real and imaginary parts"
    );
    assert!(uncorrelated(first.narrow(0, 0, 32), first.narrow(0, 32, 32)), "samples");
    assert!(uncorrelated(first, second), "epochs");
}

#[test]
fn clean_waveforms_are_whitened_and_without_noise() {
    let (pipeline, data) = try_pipeline(Path::new("tests/cases/npe"), |_| ()).unwrap();
    let indices: Vec<usize> = (0..150).collect();
    let waveforms = pipeline.clean_waveforms(&indices).unwrap();
    let parameters: HashMap<_, _> = pipeline.clean_parameters(&indices).unwrap().into_iter().collect();
    assert_eq!(waveforms.len(), 2);
    assert!(parameters["luminosity_distance"]
        .iter()
        .all(|&distance| distance == 100.0));
    for waveforms in &waveforms {
        assert_eq!(
            (waveforms.size(), waveforms.kind()),
            (vec![150, 1601], Kind::ComplexFloat)
        );
        assert_eq!(waveforms.narrow(1, 0, 100).abs().max().double_value(&[]), 0.0);
    }
    // The same as the pipeline gives for these parameters and the first ASD that fits.
    let draws = Draws {
        extrinsic: data
            .extrinsic_prior
            .keys()
            .map(|name| (name.clone(), parameters[name].clone()))
            .collect(),
        ..pipeline.draws(&indices, 0)
    };
    let unlike_by_asd_only = pipeline.intermediates(&indices, &draws).unwrap().whitened;
    let overlap = |a: &Tensor, b: &Tensor| {
        let inner = |x: &Tensor, y: &Tensor| (x * y.conj()).sum_dim_intlist(-1, false, None::<Kind>);
        let (ab, aa, bb) = (inner(a, b).real(), inner(a, a).real(), inner(b, b).real());
        (ab / (aa * bb).sqrt()).min().double_value(&[])
    };
    for (d, waveforms) in waveforms.iter().enumerate() {
        assert!(overlap(waveforms, &unlike_by_asd_only.select(1, d as i64)) > 0.95);
    }
    // Waveforms do not depend on what else is asked for.
    let few = pipeline.clean_waveforms(&indices[70..75]).unwrap();
    assert!((&few[1] - waveforms[1].narrow(0, 70, 5)).abs().max().double_value(&[]) < 1e-4);
}

/// Cropping is applied with the settings' probability, and to the strain that the network sees.
#[test]
fn cropping_reaches_the_network() {
    let crop = |data: &mut DataSettings| {
        data.random_strain_cropping = Some(StrainCropping {
            cropping_probability: 0.5,
            f_min_upper: Some(60.0),
            f_max_lower: Some(200.0),
            independent_detectors: true,
            independent_lower_upper: false,
        })
    };
    let (pipeline, _) = try_pipeline(Path::new("tests/cases/npe"), crop).unwrap();
    let indices: Vec<usize> = (0..400).collect();
    let (_, context) = pipeline.batch(&indices, 0).unwrap();
    let kept = kept_bins(&context[0]);
    assert_eq!(Some(&kept), pipeline.draws(&indices, 0).cropping.as_ref());
    let untouched = kept.iter().flatten().filter(|&bins| *bins == (0..1501)).count() as f64 / 800.0;
    assert!((untouched - 0.5).abs() < 5.0 * (0.25f64 / 800.0).sqrt(), "{untouched}");
    // 60 Hz is 35 Hz above f_min, 200 Hz is 175 Hz above it, at 4 bins a Hz.
    assert!(kept.iter().flatten().all(|bins| bins.start <= 140 && bins.end > 700));
}

/// Printed, and held to the least that training needs.
#[test]
#[ignore = "a measurement: run it alone, with --nocapture"]
fn one_thread_is_fast_enough() {
    std::thread::spawn(|| {
        limit_this_thread(1);
        let measured = throughput::measure(&pipeline("npe"), 512, Duration::from_secs(8)).unwrap();
        println!("{measured}");
        assert!(measured.samples_per_second() > 3000.0, "{measured}");
    })
    .join()
    .unwrap();
}
