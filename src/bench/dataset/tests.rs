use super::*;
use crate::data::WaveformDataset;
use crate::settings::Settings;

/// What is written is read as a dataset, and what the coefficients stand for are the waveforms.
#[test]
fn a_small_dataset_is_read_back() {
    let folder = tempfile::tempdir().unwrap();
    let request = DatasetRequest {
        samples: 30,
        size: 40,
        f_max: 128.0,
        delta_f: 0.5,
    };
    write(folder.path(), &request).unwrap();
    let mut settings = Settings::load(Path::new("settings/bench.yaml")).unwrap().train;
    (settings.data.domain_update, settings.data.svd_size_update) = (None, None);
    let dataset = WaveformDataset::open(&folder.path().join(WAVEFORMS), &settings.data, true).unwrap();
    assert_eq!(dataset.len(), 30);

    let domain = UniformFrequencyDomain::new(F_MIN, 128.0, 0.5).unwrap();
    let maker = Maker::new(&domain).unwrap();
    let parameters = maker.parameters("samples", 30).unwrap();
    let curve: Vec<f32> = curve(WHITENING)
        .unwrap()
        .on_domain(&domain)
        .unwrap()
        .iter()
        .map(|&asd| asd as f32)
        .collect();
    let plus = Tensor::from_slice(
        &parameters
            .iter()
            .map(|p| 0.5 * (1.0 + p.theta_jn.cos().powi(2)))
            .collect::<Vec<_>>(),
    );
    let waveforms = maker.whitened(&parameters).unwrap() * plus.to_kind(Kind::Float).unsqueeze(1);
    let read = dataset.polarizations(&(0..30).collect::<Vec<_>>()).unwrap().plus / Tensor::from_slice(&curve);
    let error = (&read - &waveforms).abs().square().sum(Kind::Double).double_value(&[]);
    let size = waveforms.abs().square().sum(Kind::Double).double_value(&[]);
    assert!(size > 0.0 && error < 1e-2 * size, "{error} of {size}");
    assert!(crate::data::AsdDataset::open(&folder.path().join(ASDS), &["H1".into(), "L1".into()], &domain).is_ok());
}

#[test]
fn what_makes_no_dataset_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    for request in [
        DatasetRequest {
            samples: 0,
            ..DatasetRequest::default()
        },
        DatasetRequest {
            f_max: 10.0,
            ..DatasetRequest::default()
        },
        DatasetRequest {
            size: 200,
            f_max: 64.0,
            delta_f: 0.5,
            samples: 3,
        },
    ] {
        let error = write(folder.path(), &request).unwrap_err();
        assert!(error.chain().any(|cause| cause.is::<BenchError>()), "{error:#}");
    }
}
