//! The `local` section: where and how long, never what. Written to `local_settings.yaml` in the train directory.

use super::Value;
use std::path::PathBuf;

#[derive(Debug, Clone)]
pub struct LocalSettings {
    pub device: Device,
    /// Threads that prepare batches on each rank; from `data_threads`, else from `num_workers` shared out over the
    /// ranks, at least 1. `None`: chosen from the machine.
    pub data_threads: Option<usize>,
    pub runtime_limits: RuntimeLimitSettings,
    pub checkpoint_epochs: Option<u64>,
    pub leave_waveforms_on_disk: bool,
    pub local_cache_path: Option<PathBuf>,
    pub test_only: bool,
    /// Seed of all random numbers; drawn and recorded when absent.
    pub seed: Option<u64>,
    /// `num_gpus`, else `condor.num_gpus`, else 1, as Dingo's `get_num_gpus`.
    pub num_gpus: usize,
    /// Gradient bucket size in MB.
    pub bucket_size_mb: f64,
    /// As written, for `local_settings.yaml`.
    pub raw: Value,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Device {
    Cpu,
    Cuda,
}

/// Seconds and epochs; `None` is no limit.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RuntimeLimitSettings {
    pub max_time_per_run: Option<f64>,
    pub max_epochs_per_run: Option<u64>,
    pub max_epochs_total: Option<u64>,
}
