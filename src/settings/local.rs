//! The `local` section: where and how long, never what. Written to `local_settings.yaml` in the train directory.

use super::cluster::{CondorSettings, SlurmSettings};
use super::keys;
use super::section::{Origin, Section, NOT_NEGATIVE, POSITIVE};
use super::{in_file, read_document, yaml, SettingsError, Value};
use std::path::{Path, PathBuf};
use std::time::Duration;

#[derive(Debug, Clone)]
pub struct LocalSettings {
    pub device: Device,
    /// Threads that prepare batches on each rank, where given; see [`LocalSettings::data_threads_per_rank`].
    pub data_threads: Option<usize>,
    /// Dingo's number of loader processes over all GPUs; 0 there means none besides the trainer.
    pub num_workers: Option<usize>,
    pub runtime_limits: RuntimeLimitSettings,
    pub checkpoint_epochs: Option<u64>,
    /// How often `model_latest.pt` is written inside epochs; `None` is at their end only.
    pub checkpoint_minutes: Option<f64>,
    pub leave_waveforms_on_disk: bool,
    pub local_cache_path: Option<PathBuf>,
    pub test_only: bool,
    /// Seed of all random numbers; drawn and recorded when absent.
    pub seed: Option<u64>,
    /// `num_gpus`, else `condor.num_gpus`, else 1, as Dingo's `get_num_gpus`.
    pub num_gpus: usize,
    /// Machines that a job takes, each with `num_gpus`.
    pub num_nodes: usize,
    pub condor: Option<CondorSettings>,
    pub slurm: Option<SlurmSettings>,
    /// Gradient bucket size in MB.
    pub bucket_size_mb: f64,
    /// Whether BatchNorm takes the statistics of the whole batch over all ranks, rather than each rank's own share.
    pub sync_batch_norm: bool,
    /// Steps in a row that may be skipped, because loss or gradient is not finite, before the run stops.
    pub max_skipped_steps: u64,
    /// How long ranks wait for one another before the job ends.
    pub collective_timeout: Duration,
    /// Estimate the gradient noise scale while training.
    pub gradient_noise_scale: bool,
    /// Which library does the large matrix products of single precision, where it is not to be found out.
    pub matrix_library: Option<MatrixLibrary>,
    /// PyTorch's precision of float32 matrix products, where given.
    pub float32_matmul_precision: Option<MatmulPrecision>,
    /// As written, for `local_settings.yaml`.
    pub raw: Value,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Device {
    Cpu,
    Cuda,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MatmulPrecision {
    Highest,
    High,
    Medium,
}

impl MatmulPrecision {
    /// PyTorch's word for it.
    pub fn name(self) -> &'static str {
        match self {
            MatmulPrecision::Highest => "highest",
            MatmulPrecision::High => "high",
            MatmulPrecision::Medium => "medium",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MatrixLibrary {
    Mkl,
    OneDnn,
}

/// Seconds and epochs; `None` is no limit.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RuntimeLimitSettings {
    pub max_time_per_run: Option<f64>,
    pub max_epochs_per_run: Option<u64>,
    pub max_epochs_total: Option<u64>,
}

/// Large enough to use the network's bandwidth, small enough to overlap with backward; PyTorch's DDP takes the same.
const DEFAULT_BUCKET_SIZE_MB: f64 = 25.0;

/// A batch of bad luck ends sooner; a network that has diverged never recovers.
const DEFAULT_MAX_SKIPPED_STEPS: u64 = 10;

/// In seconds. Longer than writing a checkpoint to a slow file system takes, shorter than anyone wants to pay for GPUs that wait.
const DEFAULT_COLLECTIVE_TIMEOUT: f64 = 600.0;

impl LocalSettings {
    /// Reads a `local` section that stands alone.
    pub fn from_value(mut raw: Value) -> Result<Self, SettingsError> {
        if raw.is_null() {
            raw = Value::Mapping(Default::default());
        }
        let mut section = Section::new("local", &mut raw, Origin::User)?;
        let settings = Self::read(&mut section)?;
        Ok(LocalSettings { raw, ..settings })
    }

    /// Reads a `local_settings.yaml`.
    pub fn load(path: &Path) -> Result<Self, SettingsError> {
        let file = path.display().to_string();
        let document = read_document(path)?;
        let lines = |key: &str| document.line(key.strip_prefix("local.").unwrap_or(key));
        Self::from_value(document.value.clone()).map_err(|error| in_file(error, &file, lines))
    }

    /// The text of `local_settings.yaml`, which Dingo reads as well.
    pub fn to_yaml(&self) -> String {
        yaml::write(&self.raw)
    }

    /// Records the seed that was drawn because none was given.
    pub fn set_seed(&mut self, seed: u64) {
        self.raw["seed"] = Value::from(seed);
        self.seed = Some(seed);
    }

    /// Of a job that is submitted: one for each GPU; on CPUs as many.
    pub fn ranks_per_node(&self) -> usize {
        self.num_gpus.max(1)
    }

    /// Of a job that is submitted, over all its machines.
    pub fn ranks(&self) -> usize {
        self.num_nodes * self.ranks_per_node()
    }

    /// Whether `num_gpus` was given, rather than 1 by default.
    pub fn num_gpus_is_given(&self) -> bool {
        let in_condor = self.raw.get("condor").and_then(|condor| condor.get("num_gpus"));
        self.raw
            .get("num_gpus")
            .or(in_condor)
            .is_some_and(|num_gpus| !num_gpus.is_null())
    }

    /// Threads that prepare batches on each of `world_size` ranks: `data_threads`, else Dingo's `num_workers` shared out
    /// and rounded up, at least 1. `None`: neither was given.
    pub fn data_threads_per_rank(&self, world_size: usize) -> Option<usize> {
        let shared_out = |workers: usize| workers.div_ceil(world_size.max(1)).max(1);
        self.data_threads.or(self.num_workers.map(shared_out))
    }

    /// Size of a gradient bucket in bytes.
    pub fn bucket_bytes(&self) -> usize {
        (self.bucket_size_mb * f64::from(1 << 20)) as usize
    }

    /// `checkpoint_minutes` as a duration; one that no clock can count is as good as none.
    pub fn checkpoint_interval(&self) -> Option<Duration> {
        Duration::try_from_secs_f64(self.checkpoint_minutes? * 60.0).ok()
    }

    fn read(local: &mut Section) -> Result<Self, SettingsError> {
        local.check_keys(keys::LOCAL)?;
        if !matches!(local.get("wandb"), None | Some(Value::Null | Value::Bool(false))) {
            log::warn!(
                "{} is ignored: reporting to Weights & Biases is not there yet",
                local.path("wandb")
            );
        }
        let data_threads = local.optional_count("data_threads", 1)?.map(|n| n as usize);
        let num_workers = local.optional_count("num_workers", 0)?.map(|n| n as usize);
        if num_workers.is_some() && data_threads.is_none() {
            log::info!(
                "{} sets the number of data threads; there are no worker processes",
                local.path("num_workers")
            );
        }
        Ok(LocalSettings {
            device: read_device(local)?,
            data_threads,
            num_workers,
            runtime_limits: RuntimeLimitSettings::read(local.optional_child("runtime_limits")?)?,
            checkpoint_epochs: local.optional_count("checkpoint_epochs", 1)?,
            checkpoint_minutes: local.optional_number("checkpoint_minutes", &POSITIVE)?,
            leave_waveforms_on_disk: local.flag_or("leave_waveforms_on_disk", true)?,
            local_cache_path: local
                .optional_text("local_cache_path", "the path of a folder")?
                .map(PathBuf::from),
            test_only: local.flag_or("test_only", false)?,
            seed: local.optional_count("seed", 0)?,
            num_gpus: read_num_gpus(local)?,
            num_nodes: local.optional_count("num_nodes", 1)?.unwrap_or(1) as usize,
            condor: local
                .optional_child("condor")?
                .map(|mut condor| CondorSettings::read(&mut condor))
                .transpose()?,
            slurm: local
                .optional_child("slurm")?
                .map(|mut slurm| SlurmSettings::read(&mut slurm))
                .transpose()?,
            bucket_size_mb: local.number_or("bucket_size_mb", DEFAULT_BUCKET_SIZE_MB, &POSITIVE)?,
            sync_batch_norm: local.flag_or("sync_batch_norm", true)?,
            max_skipped_steps: local.count_or("max_skipped_steps", DEFAULT_MAX_SKIPPED_STEPS, 1)?,
            collective_timeout: read_collective_timeout(local)?,
            gradient_noise_scale: local.flag_or("gradient_noise_scale", false)?,
            matrix_library: read_matrix_library(local)?,
            float32_matmul_precision: read_matmul_precision(local)?,
            raw: Value::Null,
        })
    }
}

fn read_device(local: &mut Section) -> Result<Device, SettingsError> {
    local.choice("device", &[("cpu", Ok(Device::Cpu)), ("cuda", Ok(Device::Cuda))])
}

/// A time that no clock can count is as good as none.
fn read_collective_timeout(local: &mut Section) -> Result<Duration, SettingsError> {
    let seconds = local.number_or("collective_timeout", DEFAULT_COLLECTIVE_TIMEOUT, &POSITIVE)?;
    Ok(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX))
}

fn read_matrix_library(local: &mut Section) -> Result<Option<MatrixLibrary>, SettingsError> {
    match local.get("matrix_library") {
        None | Some(Value::Null) => Ok(None),
        Some(_) => local.choice(
            "matrix_library",
            &[
                ("auto", Ok(None)),
                ("mkl", Ok(Some(MatrixLibrary::Mkl))),
                ("onednn", Ok(Some(MatrixLibrary::OneDnn))),
            ],
        ),
    }
}

fn read_matmul_precision(local: &mut Section) -> Result<Option<MatmulPrecision>, SettingsError> {
    match local.get("float32_matmul_precision") {
        None | Some(Value::Null) => Ok(None),
        Some(_) => local
            .choice(
                "float32_matmul_precision",
                &[
                    ("highest", Ok(MatmulPrecision::Highest)),
                    ("high", Ok(MatmulPrecision::High)),
                    ("medium", Ok(MatmulPrecision::Medium)),
                ],
            )
            .map(Some),
    }
}

/// Dingo's `get_num_gpus`; unlike there, the outdated place is pointed out also when it does not count.
fn read_num_gpus(local: &mut Section) -> Result<usize, SettingsError> {
    let mut from_condor = None;
    if let Some(mut condor) = local.optional_child("condor")? {
        log::info!("local.condor is what jobs are submitted with (dingo-spmd submit condor)");
        if condor.get("num_gpus").is_some() {
            log::warn!("{} is deprecated: move it to local.num_gpus", condor.path("num_gpus"));
        }
        from_condor = condor.optional_count("num_gpus", 0)?;
    }
    let num_gpus = match local.get("num_gpus") {
        Some(_) => Some(local.count("num_gpus", 0)?),
        None => from_condor,
    };
    Ok(num_gpus.unwrap_or(1) as usize)
}

impl RuntimeLimitSettings {
    fn read(limits: Option<Section>) -> Result<Self, SettingsError> {
        let Some(mut limits) = limits else {
            return Ok(Self::default());
        };
        limits.check_keys(keys::RUNTIME_LIMITS)?;
        Ok(RuntimeLimitSettings {
            max_time_per_run: limits.optional_number("max_time_per_run", &NOT_NEGATIVE)?,
            max_epochs_per_run: limits.optional_count("max_epochs_per_run", 0)?,
            max_epochs_total: limits.optional_count("max_epochs_total", 0)?,
        })
    }
}
