//! The `training` section: stages, optimizers, schedulers, early stopping. Defaults are PyTorch's.

use super::Value;
use std::path::PathBuf;

#[derive(Debug, Clone)]
pub struct StageSettings {
    pub epochs: usize,
    pub asd_dataset_path: PathBuf,
    /// `None` leaves the layer as it is, as in Dingo.
    pub freeze_rb_layer: Option<bool>,
    pub optimizer: OptimizerSettings,
    pub scheduler: SchedulerSettings,
    /// Samples per optimizer step over all ranks.
    pub batch_size: usize,
    pub early_stopping: Option<EarlyStoppingSettings>,
    /// The `optimizer` and `scheduler` sections as written (Dingo's `optimizer_kwargs`, `scheduler_kwargs`).
    pub raw_optimizer: Value,
    pub raw_scheduler: Value,
}

#[derive(Debug, Clone, PartialEq)]
pub enum OptimizerSettings {
    Adam {
        lr: f64,
        betas: (f64, f64),
        eps: f64,
        weight_decay: f64,
        amsgrad: bool,
    },
    AdamW {
        lr: f64,
        betas: (f64, f64),
        eps: f64,
        weight_decay: f64,
        amsgrad: bool,
    },
    Sgd {
        lr: f64,
        momentum: f64,
        dampening: f64,
        weight_decay: f64,
        nesterov: bool,
    },
    RmsProp {
        lr: f64,
        alpha: f64,
        eps: f64,
        weight_decay: f64,
        momentum: f64,
        centered: bool,
    },
    Adagrad {
        lr: f64,
        lr_decay: f64,
        weight_decay: f64,
        initial_accumulator_value: f64,
        eps: f64,
    },
}

#[derive(Debug, Clone, PartialEq)]
pub enum SchedulerSettings {
    Step {
        step_size: u64,
        gamma: f64,
    },
    Cosine {
        t_max: f64,
        eta_min: f64,
    },
    /// Other fields: PyTorch's ReduceLROnPlateau.
    ReduceOnPlateau {
        factor: f64,
        patience: u64,
        threshold: f64,
        threshold_relative: bool,
        cooldown: u64,
        min_lr: f64,
        eps: f64,
        maximize: bool,
    },
}

#[derive(Debug, Clone, PartialEq)]
pub struct EarlyStoppingSettings {
    pub patience: u64,
    pub verbose: bool,
    pub delta: f64,
    pub metric: EarlyStoppingMetric,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EarlyStoppingMetric {
    Training,
    Validation,
}
