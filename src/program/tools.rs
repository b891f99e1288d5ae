//! The commands that work on files, without ranks.

use super::{COMPLETE, FAILED, STOPPED};
use crate::checkpoint::{export as export_model, with_model_version, ModelFormat};
use crate::cli::{AppendStageArgs, CheckArgs, ExportArgs, InspectArgs, UsageError};
use crate::report::{self, InspectError};
use crate::settings::yaml;
use crate::train::{self, AppendRequest, CheckRequest, TrainRequest};
use anyhow::Result;

/// Refuses what the run would be refused for, and says what it would do.
pub fn check(arguments: &CheckArgs) -> Result<i32> {
    let train = &arguments.train;
    let request = CheckRequest {
        train: TrainRequest {
            settings: train.settings_path().map(Into::into),
            train_dir: train.resolve_train_dir()?,
            checkpoint: train.checkpoint.clone(),
            interrupted_status: [STOPPED, FAILED],
        },
        ranks: arguments.ranks.map(|ranks| ranks as usize),
    };
    let report = train::check(&request)?;
    report::print(&report::describe_check(&report))?;
    Ok(COMPLETE)
}

/// Says what is in a file.
pub fn inspect(arguments: &InspectArgs) -> Result<i32> {
    report::print(&report::inspect(&arguments.file, arguments.tensors)?)?;
    Ok(COMPLETE)
}

/// Writes a checkpoint with one more stage, in Dingo's words.
pub fn append_stage(arguments: &AppendStageArgs) -> Result<i32> {
    let plan = train::append_stage(&AppendRequest {
        checkpoint: arguments.checkpoint.clone(),
        stage_settings: arguments.stage_settings_file.clone(),
        out: arguments.out_file.clone(),
        replace: arguments.replace,
    })?;
    plan.warnings.iter().for_each(|warning| log::warn!("{warning}"));
    let done = match arguments.replace {
        Some(stage) => format!("Replacing planned stage {stage} with new stage."),
        None => "Appending new stage to training plan.".into(),
    };
    report::print(&format!(
        "Checkpoint training plan consists of {} stages.\n{done}\nSummary of new training plan:\n{}",
        plan.stages_before,
        yaml::write(&plan.training)
    ))?;
    Ok(COMPLETE)
}

/// Writes a network for inference.
pub fn export(arguments: &ExportArgs) -> Result<i32> {
    let format = ModelFormat::of(&arguments.out_file).ok_or_else(|| {
        UsageError(format!(
            "{}: the name of an exported model ends in .pt or .hdf5",
            arguments.out_file.display()
        ))
    })?;
    let out = match arguments.model_version_number {
        Some(version) => with_model_version(&arguments.out_file, version),
        None => arguments.out_file.clone(),
    };
    export_model(&arguments.checkpoint, &out, format)?;
    log::info!("The model is {}.", out.display());
    Ok(COMPLETE)
}

/// Whether a file that is none of ours is at fault.
pub(super) fn is_bad_input(error: &(dyn std::error::Error + 'static)) -> bool {
    error.is::<InspectError>()
}
