//! The reference cases' files and the setters.

use super::*;

fn case(name: &str) -> Settings {
    let path = format!("{}/tests/cases/{name}/train_settings.yaml", env!("CARGO_MANIFEST_DIR"));
    Settings::load(Path::new(&path)).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn the_npe_case_has_its_values() {
    let settings = case("npe");
    let data = &settings.train.data;
    assert_eq!(data.waveform_dataset_path, Path::new("waveform_dataset.hdf5"));
    assert_eq!(data.train_fraction, 0.95);
    assert_eq!(
        data.domain_update,
        Some(DomainUpdate {
            f_min: Some(25.0),
            f_max: Some(400.0),
            delta_f: None
        })
    );
    assert_eq!(data.svd_size_update, Some(48));
    assert_eq!(data.detectors, ["H1", "L1"]);
    assert_eq!(data.ref_time, 1126259462.391);
    assert_eq!(data.inference_parameters.len(), 10);
    assert_eq!(data.extrinsic_prior["ra"], "default");
    assert!(data.extrinsic_prior["geocent_time"].starts_with("bilby.core.prior.Uniform("));
    let flow = &settings.train.model.posterior;
    assert_eq!(
        (
            flow.num_flow_steps,
            flow.base_transform.hidden_dim,
            flow.base_transform.num_bins
        ),
        (4, 48, 8)
    );
    assert_eq!(
        (flow.base_transform.activation, flow.base_transform.norm),
        (Activation::Elu, Norm::BatchNorm)
    );
    let embedding = &settings.train.model.embedding;
    assert_eq!(
        (embedding.output_dim, embedding.hidden_dims.as_slice()),
        (24, [64, 32, 24].as_slice())
    );
    assert_eq!((embedding.svd.size, embedding.svd.num_training_samples), (12, 400));
    let [first, second] = settings.train.stages.as_slice() else {
        panic!("two stages")
    };
    assert_eq!(
        (first.epochs, first.freeze_rb_layer, first.batch_size),
        (2, Some(true), 64)
    );
    assert_eq!(second.asd_dataset_path, Path::new("asds.hdf5"));
    assert!(matches!(
        second.optimizer,
        OptimizerSettings::Adam {
            lr: 1e-5,
            eps: 1e-8,
            ..
        }
    ));
    assert_eq!(
        second.scheduler,
        SchedulerSettings::Cosine {
            t_max: 1.0,
            eta_min: 0.0
        }
    );
    assert_eq!(settings.local.device, Device::Cpu);
    assert_eq!(settings.local.runtime_limits.max_time_per_run, Some(3_600_000.0));
    assert_eq!(
        (settings.local.num_gpus, settings.local.data_threads_per_rank(2)),
        (1, Some(1))
    );
}

#[test]
fn the_toy_case_has_no_normalization_and_crops() {
    let settings = case("toy").train;
    assert_eq!(settings.model.posterior.base_transform.norm, Norm::None);
    assert_eq!(settings.model.embedding.norm, Norm::None);
    let cropping = settings.data.random_strain_cropping.expect("it crops");
    assert_eq!(
        (
            cropping.cropping_probability,
            cropping.f_min_upper,
            cropping.f_max_lower
        ),
        (0.7, Some(32.0), Some(90.0))
    );
    assert!(cropping.independent_detectors && cropping.independent_lower_upper);
    assert!(matches!(
        settings.stages[0].optimizer,
        OptimizerSettings::Adagrad {
            lr: 1e-3,
            eps: 1e-10,
            ..
        }
    ));
}

#[test]
fn setters_keep_tree_and_fields_in_step() {
    let mut settings = case("npe").train;
    let numbers = |x: f64| {
        settings
            .data
            .inference_parameters
            .iter()
            .map(|name| (name.clone(), x))
            .collect()
    };
    let standardization = Standardization {
        mean: numbers(0.5),
        std: numbers(2.0),
    };
    settings.set_context_parameters(Vec::new());
    settings.set_standardization(&standardization);
    settings.complete_model(10, [2, 3, 1501]);
    let read_back = TrainSettings::from_value(settings.raw.clone()).unwrap();
    assert_eq!(read_back.raw, settings.raw);
    assert_eq!(read_back.data.standardization, Some(standardization));
    assert_eq!(read_back.model.embedding.input_dims, Some([2, 3, 1501]));
    assert_eq!(
        (
            read_back.model.posterior.input_dim,
            read_back.model.posterior.context_dim
        ),
        (Some(10), Some(24))
    );
    let data_keys: Vec<_> = settings.raw["data"]
        .as_mapping()
        .unwrap()
        .keys()
        .filter_map(Value::as_str)
        .collect();
    assert_eq!(
        data_keys[data_keys.len() - 2..],
        ["context_parameters", "standardization"]
    );
    assert!(case("npe").train.differences(&read_back, 3).is_empty());
}
