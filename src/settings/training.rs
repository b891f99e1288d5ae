//! The `training` section: stages and early stopping.

use super::keys;
use super::optimizer::{OptimizerSettings, SchedulerSettings};
use super::section::{Origin, Section, ANY_NUMBER};
use super::{in_file, read_document, SettingsError, Value};
use std::path::{Path, PathBuf};

#[derive(Debug, Clone)]
pub struct StageSettings {
    pub epochs: usize,
    pub asd_dataset_path: PathBuf,
    /// `None` leaves the layer as it is, as in Dingo.
    pub freeze_rb_layer: Option<bool>,
    pub optimizer: OptimizerSettings,
    pub scheduler: SchedulerSettings,
    /// Samples per backward pass over all ranks.
    pub batch_size: usize,
    /// Backward passes whose gradients are averaged for one optimizer step.
    pub gradient_updates_per_optimizer_step: usize,
    /// Train and test the network's layers in a short floating-point type.
    pub automatic_mixed_precision: bool,
    /// Which one; the device's own where none is given.
    pub amp_dtype: Option<AmpDtype>,
    pub early_stopping: Option<EarlyStoppingSettings>,
    /// The `optimizer` and `scheduler` sections as written (Dingo's `optimizer_kwargs`, `scheduler_kwargs`).
    pub raw_optimizer: Value,
    pub raw_scheduler: Value,
}

#[derive(Debug, Clone, PartialEq)]
pub struct EarlyStoppingSettings {
    pub patience: u64,
    pub verbose: bool,
    pub delta: f64,
    pub metric: EarlyStoppingMetric,
}

/// The short type of mixed precision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AmpDtype {
    /// The range of single precision with 8 bits of mantissa; PyTorch's choice on CPUs.
    Bf16,
    /// 11 bits of mantissa and a short range, which a gradient scaler makes up for; PyTorch's choice on CUDA.
    Fp16,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EarlyStoppingMetric {
    Training,
    Validation,
}

impl StageSettings {
    /// Reads a file that holds one stage and nothing else, which is to become stage `number` of a training. Also gives the
    /// tree, with numbers where numbers are meant.
    pub fn load(path: &Path, number: usize) -> Result<(Self, Value), SettingsError> {
        let mut document = read_document(path)?;
        let mut raw = std::mem::take(&mut document.value);
        let section = format!("training.stage_{number}");
        let line = |key: &str| document.line(key.strip_prefix(&section)?.strip_prefix('.')?);
        let stage = Section::new(&section, &mut raw, Origin::User).and_then(Self::read);
        let stage = stage.map_err(|error| in_file(error, &path.display().to_string(), line))?;
        Ok((stage, raw))
    }

    /// The stages of a `training` section in their order: `stage_0`, `stage_1` and so on, without a gap.
    pub(super) fn read_all(training: &mut Section) -> Result<Vec<Self>, SettingsError> {
        let mut numbers = Vec::new();
        for name in training.key_names()? {
            match stage_number(&name) {
                Some(number) => numbers.push(number),
                None => {
                    let message = "unknown key; the nearest known key is stage_0. Allowed here: stage_0, stage_1, ...";
                    return Err(SettingsError::key(training.path(&name), message));
                }
            }
        }
        numbers.sort_unstable();
        if numbers.is_empty() {
            return Err(SettingsError::key(
                training.path("stage_0"),
                "missing; training needs at least one stage",
            ));
        }
        if let Some(gap) = (0..numbers.len()).find(|&n| numbers[n] != n) {
            let message = format!(
                "missing, though stage_{} is there; stages are numbered without a gap",
                numbers[gap]
            );
            return Err(SettingsError::key(training.path(&format!("stage_{gap}")), message));
        }
        numbers
            .iter()
            .map(|n| Self::read(training.child(&format!("stage_{n}"))?))
            .collect()
    }

    fn read(mut stage: Section) -> Result<Self, SettingsError> {
        stage.check_keys(keys::STAGE)?;
        let optimizer = OptimizerSettings::read(stage.child("optimizer")?)?;
        let scheduler = SchedulerSettings::read(stage.child("scheduler")?)?;
        Ok(StageSettings {
            epochs: stage.size("epochs", 1)?,
            asd_dataset_path: stage.text("asd_dataset_path", "the path of an ASD dataset")?.into(),
            freeze_rb_layer: stage.optional_flag("freeze_rb_layer")?,
            optimizer,
            scheduler,
            batch_size: stage.size("batch_size", 1)?,
            gradient_updates_per_optimizer_step: stage
                .optional_size("gradient_updates_per_optimizer_step", 1)?
                .unwrap_or(1),
            automatic_mixed_precision: stage.flag_or("automatic_mixed_precision", false)?,
            amp_dtype: read_amp_dtype(&mut stage)?,
            early_stopping: EarlyStoppingSettings::read(&mut stage)?,
            // After reading: with numbers where numbers are meant.
            raw_optimizer: stage.get("optimizer").cloned().unwrap_or_default(),
            raw_scheduler: stage.get("scheduler").cloned().unwrap_or_default(),
        })
    }
}

fn read_amp_dtype(stage: &mut Section) -> Result<Option<AmpDtype>, SettingsError> {
    match stage.get("amp_dtype") {
        None | Some(Value::Null) => Ok(None),
        Some(_) => stage
            .choice(
                "amp_dtype",
                &[("bf16", Ok(AmpDtype::Bf16)), ("fp16", Ok(AmpDtype::Fp16))],
            )
            .map(Some),
    }
}

fn stage_number(name: &str) -> Option<usize> {
    let digits = name.strip_prefix("stage_")?;
    let number = digits.parse().ok()?;
    (digits == format!("{number}")).then_some(number)
}

impl EarlyStoppingSettings {
    /// As in Dingo, what is false in Python (absent, null, false, an empty section) is no early stopping.
    fn read(stage: &mut Section) -> Result<Option<Self>, SettingsError> {
        match stage.get("early_stopping") {
            None | Some(Value::Null | Value::Bool(false)) => return Ok(None),
            Some(Value::Mapping(section)) if section.is_empty() => return Ok(None),
            Some(_) => {}
        }
        let mut stopping = stage.child("early_stopping")?;
        stopping.check_keys(keys::EARLY_STOPPING)?;
        let metric = match stopping.get("metric") {
            None => EarlyStoppingMetric::Validation,
            Some(_) => stopping.choice(
                "metric",
                &[
                    ("training", Ok(EarlyStoppingMetric::Training)),
                    ("validation", Ok(EarlyStoppingMetric::Validation)),
                ],
            )?,
        };
        Ok(Some(EarlyStoppingSettings {
            patience: stopping.count_or("patience", 5, 0)?,
            verbose: stopping.flag_or("verbose", false)?,
            delta: stopping.number_or("delta", 0.0, &ANY_NUMBER)?,
            metric,
        }))
    }
}
