//! What settings files mean.

use super::*;
use dingo_spmd::settings::{
    Activation, AmpDtype, Device, EarlyStoppingMetric, LocalSettings, Norm, OptimizerSettings, SchedulerSettings,
};

#[test]
fn the_production_example_is_dingos() {
    let text = text_of("settings/npe.yaml");
    let settings = Settings::parse(&text, "npe.yaml").unwrap();
    assert_eq!(settings.local.device, Device::Cuda);
    let (flow, embedding) = (&settings.train.model.posterior, &settings.train.model.embedding);
    assert_eq!(flow.num_flow_steps, 30);
    assert_eq!(
        (flow.base_transform.hidden_dim, flow.base_transform.num_transform_blocks),
        (1024, 5)
    );
    assert_eq!((embedding.hidden_dims.len(), embedding.output_dim), (24, 128));
    assert_eq!((embedding.svd.num_training_samples, embedding.svd.size), (50000, 200));
    let stages = &settings.train.stages;
    assert!(matches!(
        (stages[0].epochs, &stages[0].optimizer),
        (300, OptimizerSettings::Adam { lr: 5e-5, .. })
    ));
    assert!(matches!(
        (stages[1].epochs, &stages[1].optimizer),
        (150, OptimizerSettings::Adam { lr: 1e-5, .. })
    ));
    assert_eq!(settings.local.checkpoint_epochs, Some(50));
    assert_eq!(settings.local.data_threads_per_rank(5), Some(7));
}

#[test]
fn dingos_other_keys_are_accepted() {
    let cases = [
        ("data.window", "{type: tukey, f_s: 4096, T: 8.0, roll_off: 0.4}"),
        ("data.unconditional", "false"),
        ("data.domain_update", "null"),
        ("data.svd_size_update", "null"),
        ("data.context_parameters", "[]"),
        ("training.stage_0.gradient_updates_per_optimizer_step", "1"),
        ("training.stage_0.automatic_mixed_precision", "false"),
        ("training.stage_0.early_stopping", "{}"),
        ("training.stage_0.optimizer.fused", "true"),
        ("local.ddp_port", "12355"),
        ("local.torch_compile", "true"),
        ("local.torch_compile_cache_dir", "/tmp"),
        ("local.float32_matmul_precision", "high"),
        ("local.wandb", "{project: dingo, group: mine}"),
        ("local.use_wandb", "true"),
        (
            "local.condor",
            "{bid: 100, num_cpus: 16, memory_cpus: 128000, memory_gpus: 8000, request_disk: 50GB}",
        ),
        (
            "local.condor",
            "{requirements: x, extra_submit_lines: ['use template : FullNode']}",
        ),
        ("local.seed", "7"),
        ("local.data_threads", "3"),
        ("local.matrix_library", "auto"),
        ("local.matrix_library", "onednn"),
    ];
    for (key, yaml) in cases {
        with(key, yaml);
    }
}

#[test]
fn numbers_may_arrive_as_text_and_leave_as_numbers() {
    // `1e-4` is text in YAML 1.1, with which PyTorch could do nothing.
    let settings = with("training.stage_0.optimizer.lr", "1e-4").train;
    assert!(matches!(
        settings.stages[0].optimizer,
        OptimizerSettings::Adam { lr: 1e-4, .. }
    ));
    assert_eq!(settings.stages[0].raw_optimizer["lr"], Value::from(1e-4));
    assert_eq!(
        settings.raw["training"]["stage_0"]["optimizer"]["lr"],
        Value::from(1e-4)
    );
    let settings = with("training.stage_0.batch_size", "'6e1'").train;
    assert_eq!(settings.stages[0].batch_size, 60);
    assert_eq!(settings.raw["training"]["stage_0"]["batch_size"], Value::from(60));
}

#[test]
fn text_stays_text() {
    let key = "data.extrinsic_prior.luminosity_distance";
    let prior = |yaml: &str| {
        let settings = with(key, yaml).train;
        let raw = settings.raw["data"]["extrinsic_prior"]["luminosity_distance"].clone();
        (settings.data.extrinsic_prior["luminosity_distance"].clone(), raw)
    };
    assert_eq!(prior("'100.0'"), ("100.0".into(), Value::from("100.0")));
    assert_eq!(prior("1.0e+3"), ("1000.0".into(), Value::from(1000.0)));
    assert_eq!(prior("Default"), ("default".into(), Value::from("Default")));
}

#[test]
fn the_models_defaults_are_dingos() {
    let mut tree = changed("model.posterior_kwargs.base_transform_kwargs", "{}");
    let embedding = "{output_dim: 8, hidden_dims: [8], svd: {size: 2, no_init: true}}";
    tree["model"]["embedding_kwargs"] = yaml::read(embedding).unwrap().value;
    let model = parse(&tree).unwrap().train.model;
    let transform = &model.posterior.base_transform;
    assert_eq!(
        (transform.hidden_dim, transform.num_transform_blocks, transform.num_bins),
        (512, 2, 8)
    );
    assert_eq!((transform.activation, transform.norm), (Activation::Relu, Norm::None));
    assert_eq!((transform.tail_bound, transform.dropout_probability), (1.0, 0.0));
    assert!(!transform.apply_unconditional_transform);
    assert_eq!(
        (model.embedding.activation, model.embedding.norm),
        (Activation::Elu, Norm::BatchNorm)
    );
    assert_eq!(
        (model.embedding.dropout, model.embedding.svd.num_training_samples),
        (0.0, 0)
    );

    let defaults = with("data.inference_parameters", "default")
        .train
        .data
        .inference_parameters;
    assert_eq!(
        (defaults.len(), defaults[2].as_str(), defaults[14].as_str()),
        (15, "phase", "psi")
    );
}

#[test]
fn the_optimizers_defaults_are_pytorchs() {
    let optimizer = |yaml: &str| {
        with("training.stage_0.optimizer", yaml).train.stages[0]
            .optimizer
            .clone()
    };
    let (betas, eps, weight_decay, amsgrad) = ((0.9, 0.999), 1e-8, 0.0, false);
    let adam = OptimizerSettings::Adam {
        lr: 1e-3,
        betas,
        eps,
        weight_decay,
        amsgrad,
    };
    assert_eq!(optimizer("{type: Adam}"), adam);
    let adamw = OptimizerSettings::AdamW {
        lr: 1e-3,
        betas,
        eps,
        weight_decay: 1e-2,
        amsgrad,
    };
    assert_eq!(optimizer("{type: adamw}"), adamw);
    let (momentum, dampening) = (0.0, 0.0);
    let sgd = OptimizerSettings::Sgd {
        lr: 1e-3,
        momentum,
        dampening,
        weight_decay,
        nesterov: false,
    };
    assert_eq!(optimizer("{type: sgd}"), sgd);
    let rmsprop = OptimizerSettings::RmsProp {
        lr: 1e-2,
        alpha: 0.99,
        eps,
        weight_decay,
        momentum,
        centered: false,
    };
    assert_eq!(optimizer("{type: RMSprop}"), rmsprop);
    let (lr_decay, initial_accumulator_value) = (0.0, 0.0);
    let adagrad = OptimizerSettings::Adagrad {
        lr: 1e-2,
        lr_decay,
        weight_decay,
        initial_accumulator_value,
        eps: 1e-10,
    };
    assert_eq!(optimizer("{type: adagrad}"), adagrad);
}

#[test]
fn the_schedulers_defaults_are_pytorchs() {
    let scheduler = |yaml: &str| {
        with("training.stage_0.scheduler", yaml).train.stages[0]
            .scheduler
            .clone()
    };
    assert_eq!(
        scheduler("{type: step, step_size: 3}"),
        SchedulerSettings::Step {
            step_size: 3,
            gamma: 0.1
        }
    );
    assert_eq!(
        scheduler("{type: cosine, T_max: 2.5}"),
        SchedulerSettings::Cosine {
            t_max: 2.5,
            eta_min: 0.0
        }
    );
    let plateau = |threshold_relative, min_lr, maximize| SchedulerSettings::ReduceOnPlateau {
        factor: 0.1,
        patience: 10,
        threshold: 1e-4,
        threshold_relative,
        cooldown: 0,
        min_lr,
        eps: 1e-8,
        maximize,
    };
    assert_eq!(scheduler("{type: reduce_on_plateau}"), plateau(true, 0.0, false));
    let given = scheduler("{type: reduce_on_plateau, mode: max, threshold_mode: abs, min_lr: [1.0e-6]}");
    assert_eq!(given, plateau(false, 1e-6, true));
}

#[test]
fn early_stopping_has_dingos_defaults() {
    let stopping = with("training.stage_0.early_stopping", "{verbose: true}").train.stages[0]
        .early_stopping
        .clone();
    let stopping = stopping.expect("it stops early");
    assert_eq!((stopping.patience, stopping.delta, stopping.verbose), (5, 0.0, true));
    assert_eq!(stopping.metric, EarlyStoppingMetric::Validation);
    assert_eq!(
        with("training.stage_0.early_stopping", "{}").train.stages[0].early_stopping,
        None
    );
}

#[test]
fn num_gpus_is_found_as_in_dingo() {
    let num_gpus = |local: &str| {
        LocalSettings::from_value(yaml::read(local).unwrap().value)
            .unwrap()
            .num_gpus
    };
    assert_eq!(num_gpus("{device: cpu}"), 1);
    assert_eq!(num_gpus("{device: cpu, num_gpus: '2'}"), 2);
    assert_eq!(num_gpus("{device: cpu, condor: {num_gpus: 4}}"), 4);
    assert_eq!(num_gpus("{device: cpu, condor: {num_gpus: null}}"), 1);
    assert_eq!(num_gpus("{device: cpu, num_gpus: 4, condor: {num_gpus: 2}}"), 4);
}

#[test]
fn a_drawn_seed_is_recorded() {
    let mut local = with("local.test_only", "false").local;
    assert_eq!((local.seed, local.num_gpus_is_given()), (None, false));
    local.set_seed(u64::MAX);
    let read_back = LocalSettings::from_value(yaml::read(&local.to_yaml()).unwrap().value).unwrap();
    assert_eq!(read_back.seed, Some(u64::MAX));
    assert_eq!(with("local.test_only", "false").local.differences(&local), []);
    assert_eq!(with("local.seed", "5").local.differences(&local)[0].key, "local.seed");
    assert!(with("local.condor", "{num_gpus: 1}").local.num_gpus_is_given());
}

#[test]
fn local_settings_are_written_as_dingo_reads_them() {
    let local = with("local.local_cache_path", "'yes'").local;
    assert_eq!(local.device, Device::Cpu);
    let text = local.to_yaml();
    assert_eq!(
        text,
        "device: cpu\nnum_workers: 0\nruntime_limits:\n  max_time_per_run: 3600000\n  max_epochs_per_run: 500\n\
         checkpoint_epochs: 1\nleave_waveforms_on_disk: true\nlocal_cache_path: 'yes'\n"
    );
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("local_settings.yaml");
    std::fs::write(&path, &text).unwrap();
    let loaded = LocalSettings::load(&path).unwrap();
    assert!(local.differences(&loaded).is_empty());
    let differences = with("local.num_workers", "3").local.differences(&loaded);
    let told: Vec<_> = differences.iter().map(ToString::to_string).collect();
    assert_eq!(
        told,
        [
            "local.num_workers: 3 here, 0 there",
            "local.local_cache_path: absent here, 'yes' there"
        ]
    );
    std::fs::write(&path, text.replace("device: cpu", "device: cpu\nnum_gpu: 2")).unwrap();
    let message = LocalSettings::load(&path).unwrap_err().to_string();
    assert!(
        message.contains("local_settings.yaml, line 2: local.num_gpu: unknown key"),
        "{message}"
    );
}

#[test]
fn accumulation_and_mixed_precision() {
    let stage = |key: &str, yaml: &str| {
        let mut stages = with(&format!("training.stage_0.{key}"), yaml).train.stages;
        stages.swap_remove(0)
    };
    let passes = |yaml: &str| stage("gradient_updates_per_optimizer_step", yaml).gradient_updates_per_optimizer_step;
    assert_eq!((passes("4"), passes("null")), (4, 1));
    let off = stage("epochs", "1");
    assert_eq!((off.automatic_mixed_precision, off.amp_dtype), (false, None));
    assert!(stage("automatic_mixed_precision", "true").automatic_mixed_precision);
    assert_eq!(stage("amp_dtype", "BF16").amp_dtype, Some(AmpDtype::Bf16));
    assert_eq!(stage("amp_dtype", "fp16").amp_dtype, Some(AmpDtype::Fp16));
}

#[test]
fn failure_is_looked_for_by_default() {
    let local = with("local.seed", "1").local;
    assert!(local.sync_batch_norm && !local.gradient_noise_scale);
    assert_eq!(local.max_skipped_steps, 10);
    assert_eq!(local.collective_timeout, std::time::Duration::from_secs(600));
}
