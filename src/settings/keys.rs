//! Every key that Dingo 0.10.3 reads in a settings file, section by section, and the few of our own.

use super::section::nearest;

pub struct Known {
    pub name: &'static str,
    pub status: Status,
}

/// What becomes of a known key.
pub enum Status {
    /// It has a place in the typed settings.
    Read,
    /// It has no effect here; accepted, with one log line that says why.
    NotNeeded(&'static str),
    /// An error, except with the value `unless`, by which Dingo behaves as if the key were absent.
    NotYet { unless: &'static str, what: &'static str },
}

use Status::{NotNeeded, NotYet, Read};

const fn read(name: &'static str) -> Known {
    Known { name, status: Read }
}

const fn not_needed(name: &'static str, why: &'static str) -> Known {
    Known {
        name,
        status: NotNeeded(why),
    }
}

const fn not_yet(name: &'static str, what: &'static str) -> Known {
    Known {
        name,
        status: NotYet { unless: "", what },
    }
}

const fn not_yet_unless(name: &'static str, unless: &'static str, what: &'static str) -> Known {
    Known {
        name,
        status: NotYet { unless, what },
    }
}

pub const ROOT: &[Known] = &[read("data"), read("model"), read("training"), read("local")];

pub const DATA: &[Known] = &[
    read("waveform_dataset_path"),
    read("train_fraction"),
    read("domain_update"),
    read("svd_size_update"),
    read("detectors"),
    read("extrinsic_prior"),
    read("ref_time"),
    read("inference_parameters"),
    read("context_parameters"),
    read("random_strain_cropping"),
    read("zero_noise"),
    read("standardization"),
    not_needed("window", "only the preparation of event data reads it"),
    not_yet("gnpe_time_shifts", "group-equivariant NPE"),
    not_yet("chirp_prior_conditioning", "prior conditioning on the chirp mass"),
    not_yet(
        "gnpe_chirp",
        "prior conditioning on the chirp mass; now called chirp_prior_conditioning",
    ),
    not_yet("tokenization", "transformer embedding"),
    not_yet_unless("unconditional", "false", "density estimation without data"),
];

pub const DOMAIN_UPDATE: &[Known] = &[read("f_min"), read("f_max"), read("delta_f"), read("type")];

pub const RANDOM_STRAIN_CROPPING: &[Known] = &[
    read("f_min_upper"),
    read("f_max_lower"),
    read("cropping_probability"),
    read("independent_detectors"),
    read("independent_lower_upper"),
    not_yet_unless("deterministic_fmin_fmax", "null", "cropping to a fixed range"),
];

pub const STANDARDIZATION: &[Known] = &[read("mean"), read("std")];

pub const MODEL: &[Known] = &[
    read("posterior_model_type"),
    read("posterior_kwargs"),
    read("embedding_type"),
    read("embedding_kwargs"),
];

const CONTINUOUS: &str = "a setting of flow_matching and score_matching";

pub const POSTERIOR: &[Known] = &[
    read("num_flow_steps"),
    read("base_transform_kwargs"),
    read("input_dim"),
    read("context_dim"),
    not_yet("activation", CONTINUOUS),
    not_yet("hidden_dims", CONTINUOUS),
    not_yet("dropout", CONTINUOUS),
    not_yet("norm", CONTINUOUS),
    not_yet("type", CONTINUOUS),
    not_yet("context_with_glu", CONTINUOUS),
    not_yet("theta_with_glu", CONTINUOUS),
    not_yet("theta_embedding_kwargs", CONTINUOUS),
    not_yet("time_prior_exponent", CONTINUOUS),
    not_yet("sigma_min", "a setting of flow_matching"),
    not_yet("epsilon", "a setting of score_matching"),
    not_yet("beta_min", "a setting of score_matching"),
    not_yet("beta_max", "a setting of score_matching"),
    not_yet("likelihood_weighting", "a setting of score_matching"),
];

pub const BASE_TRANSFORM: &[Known] = &[
    read("hidden_dim"),
    read("num_transform_blocks"),
    read("activation"),
    read("dropout_probability"),
    read("norm"),
    read("num_bins"),
    read("tail_bound"),
    read("apply_unconditional_transform"),
    read("base_transform_type"),
];

const TRANSFORMER: &str = "a setting of the transformer embedding";

pub const EMBEDDING: &[Known] = &[
    read("output_dim"),
    read("hidden_dims"),
    read("activation"),
    read("dropout"),
    read("norm"),
    read("svd"),
    read("input_dims"),
    read("added_context"),
    not_yet_unless(
        "V_rb_list",
        "null",
        "a reduced basis from files; it is computed from the waveforms",
    ),
    not_yet("tokenizer_kwargs", TRANSFORMER),
    not_yet("transformer_kwargs", TRANSFORMER),
    not_yet("pooling", TRANSFORMER),
    not_yet("final_net_kwargs", TRANSFORMER),
    not_yet("allow_tf32", TRANSFORMER),
];

pub const SVD: &[Known] = &[
    read("size"),
    read("num_training_samples"),
    read("num_validation_samples"),
    read("no_init"),
    not_needed("num_workers", "the waveforms of the SVD are shared out over the ranks"),
];

pub const STAGE: &[Known] = &[
    read("epochs"),
    read("asd_dataset_path"),
    read("freeze_rb_layer"),
    read("optimizer"),
    read("scheduler"),
    read("batch_size"),
    read("early_stopping"),
    read("gradient_updates_per_optimizer_step"),
    read("automatic_mixed_precision"),
    // Our own.
    read("amp_dtype"),
];

pub const EARLY_STOPPING: &[Known] = &[read("patience"), read("verbose"), read("delta"), read("metric")];

const SPEED_ONLY: &str = "it chooses among PyTorch's implementations of the same update";

// What PyTorch's optimizers have in common besides their hyperparameters.
macro_rules! optimizer_keys {
    ($($own:expr),* $(,)?) => {
        &[
            read("type"),
            read("lr"),
            read("weight_decay"),
            $($own,)*
            not_needed("foreach", SPEED_ONLY),
            not_needed("fused", SPEED_ONLY),
            not_needed("capturable", SPEED_ONLY),
            not_yet_unless("maximize", "false", "maximizing the loss"),
            not_yet_unless("differentiable", "false", "a differentiable optimizer step"),
        ]
    };
}

pub const ADAM: &[Known] = optimizer_keys![
    read("betas"),
    read("eps"),
    read("amsgrad"),
    not_yet_unless("decoupled_weight_decay", "false", "use type: adamw"),
];
pub const ADAMW: &[Known] = optimizer_keys![read("betas"), read("eps"), read("amsgrad")];
pub const SGD: &[Known] = optimizer_keys![read("momentum"), read("dampening"), read("nesterov")];
pub const RMSPROP: &[Known] = optimizer_keys![read("alpha"), read("eps"), read("momentum"), read("centered")];
pub const ADAGRAD: &[Known] = optimizer_keys![read("lr_decay"), read("initial_accumulator_value"), read("eps")];

const LAST_EPOCH: Known = not_yet_unless("last_epoch", "-1", "a schedule that starts in its midst");

pub const STEP: &[Known] = &[read("type"), read("step_size"), read("gamma"), LAST_EPOCH];
pub const COSINE: &[Known] = &[read("type"), read("T_max"), read("eta_min"), LAST_EPOCH];
pub const REDUCE_ON_PLATEAU: &[Known] = &[
    read("type"),
    read("mode"),
    read("factor"),
    read("patience"),
    read("threshold"),
    read("threshold_mode"),
    read("cooldown"),
    read("min_lr"),
    read("eps"),
];

pub const LOCAL: &[Known] = &[
    read("device"),
    read("num_workers"),
    read("num_gpus"),
    read("runtime_limits"),
    read("checkpoint_epochs"),
    read("leave_waveforms_on_disk"),
    read("local_cache_path"),
    read("test_only"),
    read("float32_matmul_precision"),
    read("condor"),
    read("wandb"),
    not_needed("ddp_port", "the ranks find one another through MPI"),
    not_needed("torch_compile", "there is no Python to compile away"),
    not_needed("use_wandb", "Dingo's examples have it, but Dingo does not read it"),
    not_needed("wandb_api_key", "Dingo's examples have it, but Dingo does not read it"),
    not_needed("torch_compile_cache_dir", "there is no Python to compile away"),
    // Our own.
    read("seed"),
    read("data_threads"),
    read("matrix_library"),
    read("bucket_size_mb"),
    read("sync_batch_norm"),
    read("max_skipped_steps"),
    read("collective_timeout"),
    read("gradient_noise_scale"),
    read("checkpoint_minutes"),
    read("num_nodes"),
    read("slurm"),
];

pub const RUNTIME_LIMITS: &[Known] = &[
    read("max_time_per_run"),
    read("max_epochs_per_run"),
    read("max_epochs_total"),
];

pub const CONDOR: &[Known] = &[
    read("num_gpus"),
    read("num_cpus"),
    read("memory_cpus"),
    read("memory_gpus"),
    read("request_disk"),
    read("requirements"),
    read("extra_submit_lines"),
    read("bid"),
    read("arguments"),
    read("executable"),
];

/// Our own.
pub const SLURM: &[Known] = &[
    read("partition"),
    read("account"),
    read("qos"),
    read("time"),
    read("constraint"),
    read("memory"),
    read("cpus_per_task"),
    read("signal_time"),
    read("launcher"),
    read("extra_lines"),
];

/// All sections by the name a message gives them, to say where a misplaced key belongs.
const SECTIONS: &[(&str, &[Known])] = &[
    ("the top level", ROOT),
    ("data", DATA),
    ("data.domain_update", DOMAIN_UPDATE),
    ("data.random_strain_cropping", RANDOM_STRAIN_CROPPING),
    ("model", MODEL),
    ("model.posterior_kwargs", POSTERIOR),
    ("model.posterior_kwargs.base_transform_kwargs", BASE_TRANSFORM),
    ("model.embedding_kwargs", EMBEDDING),
    ("model.embedding_kwargs.svd", SVD),
    ("training.stage_N", STAGE),
    ("training.stage_N.early_stopping", EARLY_STOPPING),
    ("local", LOCAL),
    ("local.runtime_limits", RUNTIME_LIMITS),
    ("local.condor", CONDOR),
    ("local.slurm", SLURM),
];

/// The message for the key `name` that is not among `known`: the nearest one, where it belongs if that is elsewhere, and
/// what is allowed here.
pub fn unknown(name: &str, known: &[Known]) -> String {
    let names = || {
        known
            .iter()
            .filter(|known| !matches!(known.status, NotYet { .. }))
            .map(|known| known.name)
    };
    let allowed = names().collect::<Vec<_>>().join(", ");
    let holds_it = |(_, known): &&(&str, &[Known])| known.iter().any(|known| known.name == name);
    let hint = match (
        SECTIONS.iter().find(holds_it),
        nearest(name, known.iter().map(|known| known.name)),
    ) {
        (Some((section, _)), _) => format!("; that key belongs to {section}"),
        (None, Some(nearest)) => format!("; the nearest known key is {nearest}"),
        (None, None) => String::new(),
    };
    format!("unknown key{hint}. Allowed here: {allowed}")
}
