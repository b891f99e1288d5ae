//! A training that is to run as a job: what it needs, and the part of its script that is the same under every scheduler.

use super::{shell, JobsError, Scheduler};
use crate::settings::{LocalSettings, Settings, SettingsError};
use crate::train::{Start, TrainRequest};
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};

/// What the command line asks for.
#[derive(Debug, Clone)]
pub struct SubmitRequest {
    pub train_dir: PathBuf,
    /// Where to go on from, in the place of `model_latest.pt`.
    pub checkpoint: Option<PathBuf>,
    /// Shell command to run once the training is complete.
    pub exit_command: Option<String>,
    /// Print what would be submitted.
    pub dry_run: bool,
}

/// A training as its scripts see it. Paths are absolute, as a job may start anywhere.
#[derive(Debug, Clone)]
pub struct Job {
    /// This program.
    pub program: PathBuf,
    /// Where paths in the settings are relative to.
    pub work_dir: PathBuf,
    pub train_dir: PathBuf,
    pub checkpoint: Option<PathBuf>,
    pub exit_command: Option<String>,
}

/// A file of a job in the train dir.
#[derive(Debug, Clone)]
pub struct JobFile {
    pub name: &'static str,
    pub text: String,
    pub executable: bool,
}

/// The training and what follows it, for bash; see the script itself.
const TRAINING: &str = include_str!("scripts/training.sh");

/// Dingo's name for the settings in a train dir that jobs begin from.
const TRAIN_SETTINGS: &str = "train_settings.yaml";

impl Job {
    /// Reads what a training in the train dir would begin or go on with, and the local settings that count for the next job:
    /// the train dir's `local_settings.yaml` when the training goes on, else the settings file's. Nothing when all stages are
    /// complete.
    pub(super) fn read(scheduler: Scheduler, request: &SubmitRequest) -> Result<Option<(Job, LocalSettings)>> {
        let train_dir = absolute(&request.train_dir)?;
        let settings = Some(train_dir.join(TRAIN_SETTINGS)).filter(|path| path.exists());
        let training = TrainRequest {
            settings: settings.clone(),
            train_dir: train_dir.clone(),
            checkpoint: request.checkpoint.as_deref().map(absolute).transpose()?,
            interrupted_status: [0, 0],
        };
        if settings.is_none() && training.checkpoint.is_none() && !training.latest().exists() {
            let message = format!("holds neither {TRAIN_SETTINGS} to begin with nor model_latest.pt to go on from");
            return Err(JobsError::TrainDir {
                path: request.train_dir.clone(),
                message,
            }
            .into());
        }
        let start = Start::read(&training)?;
        start.warnings.iter().for_each(|warning| log::warn!("{warning}"));
        if start.is_complete() {
            return Ok(None);
        }
        let local = settings_for(scheduler, start.local, settings.as_deref())?;
        let batch_sizes = start.settings.check_batch_sizes(local.ranks());
        batch_sizes.with_context(|| start.settings_file.display().to_string())?;
        let job = Job {
            program: absolute(&std::env::current_exe()?)?,
            work_dir: std::env::current_dir()?,
            train_dir,
            checkpoint: training.checkpoint,
            exit_command: request.exit_command.clone(),
        };
        Ok(Some((job, local)))
    }

    /// The path of a file in the train dir.
    pub(super) fn in_train_dir(&self, name: &str) -> String {
        text(&self.train_dir.join(name))
    }

    /// The beginning of a script in the train dir: its variables, those of the scheduler among them, and the functions that
    /// train and go on.
    pub(super) fn script(&self, name: &str, variables: &[(&str, &str)]) -> String {
        let checkpoint = self.checkpoint.as_deref().map(text).unwrap_or_default();
        let common = [
            ("script", name),
            ("program", &text(&self.program)),
            ("work_dir", &text(&self.work_dir)),
            ("train_dir", &text(&self.train_dir)),
            ("checkpoint", &checkpoint),
            ("exit_command", self.exit_command.as_deref().unwrap_or_default()),
        ];
        let variables = shell::assignments(&[&common[..], variables].concat());
        format!("{variables}\n{TRAINING}\n")
    }
}

/// As in Dingo, when the train dir's `local_settings.yaml` says nothing of the scheduler, the settings file may.
fn settings_for(
    scheduler: Scheduler,
    local: LocalSettings,
    settings: Option<&Path>,
) -> Result<LocalSettings, SettingsError> {
    let knows_it = |local: &LocalSettings| match scheduler {
        Scheduler::Condor => local.condor.is_some(),
        Scheduler::Slurm => local.slurm.is_some(),
    };
    let Some(path) = settings.filter(|_| !knows_it(&local)) else {
        return Ok(local);
    };
    let written = Settings::load(path)?.local;
    Ok(if knows_it(&written) { written } else { local })
}

fn absolute(path: &Path) -> Result<PathBuf, JobsError> {
    std::path::absolute(path).map_err(|reason| JobsError::Io {
        action: "find",
        path: path.to_owned(),
        reason,
    })
}

fn text(path: &Path) -> String {
    path.display().to_string()
}
