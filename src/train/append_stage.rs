//! A further stage for a training that has a checkpoint, as `dingo_append_training_stage` adds it.

use super::Progress;
use crate::checkpoint::{CheckpointError, Dict, Object};
use crate::settings::{SettingsError, StageSettings, Value};
use anyhow::Result;
use std::path::{Path, PathBuf};

/// What the command line asks for.
#[derive(Debug, Clone)]
pub struct AppendRequest {
    pub checkpoint: PathBuf,
    /// A file that holds the settings of one stage.
    pub stage_settings: PathBuf,
    pub out: PathBuf,
    /// The stage to be replaced, rather than one more.
    pub replace: Option<usize>,
}

/// The plan that was written.
#[derive(Debug)]
pub struct NewPlan {
    /// Stages that the checkpoint had.
    pub stages_before: usize,
    /// Which one is new.
    pub new_stage: usize,
    /// The `training` section as it is now.
    pub training: Value,
    /// What the user should know.
    pub warnings: Vec<String>,
}

/// Writes the checkpoint with the stage to `request.out`, all of it or nothing. Everything else in the checkpoint stays as it
/// stands, whatever program wrote it.
///
/// # Errors
/// A checkpoint or stage that cannot be read; a stage to replace that is not there, or that the checkpoint stands in the
/// middle of an epoch of; a file that cannot be written.
pub fn append_stage(request: &AppendRequest) -> Result<NewPlan> {
    let path = &request.checkpoint;
    let mut root = Object::load(path)?;
    let lengths = stage_lengths(&root, path)?;
    let new_stage = match request.replace {
        Some(stage) if stage >= lengths.len() => return Err(no_such_stage(stage, lengths.len(), path).into()),
        Some(stage) => stage,
        None => lengths.len(),
    };
    let (settings, raw) = StageSettings::load(&request.stage_settings, new_stage)?;
    let mut warnings = Vec::new();
    let progress = progress(&root, path, &lengths)?;
    if progress.stages_begun() > new_stage {
        let epoch = root.get("epoch").and_then(Object::as_u64).unwrap_or(0);
        warnings.push(format!(
            "stage {new_stage} has already begun in the checkpoint, whose epoch is {epoch}: what was trained with its \
             former settings stays, and optimizer and scheduler go on from their state"
        ));
    }
    let progress = progress_with(progress, new_stage, settings.epochs, path)?;
    let training = entry(&mut root, &["metadata", "train_settings", "training"], path)?;
    training.set(&format!("stage_{new_stage}"), &raw);
    let plan = Object::Dict(training.shallow_clone()).to_value().unwrap_or_default();
    record(&mut root, progress, lengths.len().max(new_stage + 1));
    root.save(&request.out)?;
    Ok(NewPlan {
        stages_before: lengths.len(),
        new_stage,
        training: plan,
        warnings,
    })
}

fn no_such_stage(stage: usize, stages: usize, path: &Path) -> SettingsError {
    SettingsError::key(
        "--replace",
        format!(
            "{stage} is no stage of {}; its {stages} stages are numbered from 0 to {}",
            path.display(),
            stages.saturating_sub(1)
        ),
    )
}

/// The dict below these keys.
fn entry<'a>(root: &'a mut Object, keys: &[&str], path: &Path) -> Result<&'a mut Dict, CheckpointError> {
    let mut at = root;
    for (depth, key) in keys.iter().enumerate() {
        let found = match at {
            Object::Dict(dict) => dict.get_mut(key),
            _ => None,
        };
        let missing = || CheckpointError::invalid(path, keys[..=depth].join("."), "is missing");
        at = found.ok_or_else(missing)?;
    }
    match at {
        Object::Dict(dict) => Ok(dict),
        _ => Err(CheckpointError::invalid(path, keys.join("."), "should be a dict")),
    }
}

/// The number of epochs of each stage.
fn stage_lengths(root: &Object, path: &Path) -> Result<Vec<usize>, CheckpointError> {
    let section = "metadata.train_settings.training";
    let training = section.split('.').try_fold(root, |at, key| at.get(key));
    let training = training.ok_or_else(|| CheckpointError::invalid(path, section, "is missing"))?;
    let stages = (0..).map_while(|number| training.get(&format!("stage_{number}")));
    let length = |(number, stage): (usize, &Object)| {
        let epochs = stage.get("epochs").and_then(Object::as_u64);
        let wrong = || CheckpointError::invalid(path, format!("{section}.stage_{number}.epochs"), "should be a count");
        epochs.map(|epochs| epochs as usize).ok_or_else(wrong)
    };
    stages.enumerate().map(length).collect()
}

/// Where the checkpoint stands: what it records, else what its epoch means in Dingo.
fn progress(root: &Object, path: &Path, lengths: &[usize]) -> Result<Progress, CheckpointError> {
    if let Some(recorded) = root
        .get("spmd")
        .and_then(|spmd| Progress::from_object(spmd.get("progress")?))
    {
        return Ok(recorded);
    }
    let epoch = root.get("epoch").and_then(Object::as_u64);
    let epoch = epoch.ok_or_else(|| CheckpointError::invalid(path, "epoch", "should be a count"))?;
    Ok(Progress::from_stage_lengths(epoch, lengths.iter().copied()))
}

/// Where it stands when stage `new_stage` has `epochs` epochs. One that has run for as many is complete, as in Dingo.
fn progress_with(
    progress: Progress,
    new_stage: usize,
    epochs: usize,
    path: &Path,
) -> Result<Progress, CheckpointError> {
    if progress.stage != new_stage || !progress.is_inside_stage() {
        return Ok(progress);
    }
    if progress.batches > 0 {
        let message = format!(
            "the checkpoint stands inside an epoch of stage {new_stage}, after {} batches: let the run complete the epoch \
             before the stage is replaced",
            progress.batches
        );
        return Err(CheckpointError::invalid(path, "spmd.progress", message));
    }
    if progress.epoch_in_stage < epochs {
        return Ok(progress);
    }
    Ok(Progress {
        stage: new_stage + 1,
        ..Progress::default()
    })
}

/// Brings our own record up to date, where there is one.
fn record(root: &mut Object, progress: Progress, stages: usize) {
    let Object::Dict(root) = root else { return };
    if let Some(Object::Dict(spmd)) = root.get_mut("spmd") {
        spmd.set("progress", progress.to_object());
        spmd.set("complete", progress.stage >= stages);
    }
}
