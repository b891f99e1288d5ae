//! How a run begins: from a settings file, or from the checkpoint of an earlier run.

use super::{in_file, CheckpointPaths, Progress};
use crate::checkpoint::{Checkpoint, CheckpointError};
use crate::settings::{LocalSettings, Settings, SettingsError, TrainSettings};
use anyhow::Result;
use std::path::{Path, PathBuf};

/// What the command line asks of a training run.
#[derive(Debug, Clone)]
pub struct TrainRequest {
    pub settings: Option<PathBuf>,
    pub train_dir: PathBuf,
    /// Go on from this file rather than from the train dir's `model_latest.pt`.
    pub checkpoint: Option<PathBuf>,
    /// Exit statuses for a signal that arrives before training begins: with a checkpoint to go on from, and without.
    pub interrupted_status: [i32; 2],
}

impl TrainRequest {
    /// Where a run is resumed from unless `checkpoint` says otherwise.
    pub fn latest(&self) -> PathBuf {
        CheckpointPaths::new(&self.train_dir, None).latest()
    }
}

/// Everything that was read before the first file of data is opened.
pub struct Start {
    pub settings: TrainSettings,
    pub local: LocalSettings,
    /// Where the settings were read from, for messages: the settings file, else the checkpoint.
    pub settings_file: PathBuf,
    /// The checkpoint to go on from, and its path.
    pub resume: Option<(Checkpoint, PathBuf)>,
    pub progress: Progress,
    /// What the user should know but need not mend.
    pub warnings: Vec<String>,
}

impl Start {
    /// Reads the settings and, when the run is a resumed one, the checkpoint. Touches nothing on disk.
    ///
    /// # Errors
    /// Settings or checkpoint that cannot be read; settings that contradict the checkpoint; a train dir that holds a
    /// history but no checkpoint to go on from.
    pub fn read(request: &TrainRequest) -> Result<Start> {
        let written = request.settings.as_deref().map(Settings::load).transpose()?;
        let latest = request.latest();
        let checkpoint = match &request.checkpoint {
            Some(path) => Some(path.clone()),
            None => latest.exists().then_some(latest),
        };
        match (checkpoint, written) {
            (Some(path), written) => Start::resume(request, path, written),
            (None, Some(written)) => Start::anew(request, written),
            (None, None) => Err(SettingsError::File {
                file: request.train_dir.display().to_string(),
                message: "holds no model_latest.pt to resume from; to begin a run, give a settings file".into(),
            }
            .into()),
        }
    }

    fn anew(request: &TrainRequest, written: Settings) -> Result<Start> {
        let history = request.train_dir.join("history.txt");
        if history.exists() {
            return Err(SettingsError::File {
                file: history.display().to_string(),
                message: "is the history of another run, whose model_latest.pt is gone: remove it, resume with \
                          --checkpoint, or choose another --train-dir"
                    .into(),
            }
            .into());
        }
        Ok(Start {
            settings: written.train,
            local: written.local,
            settings_file: request.settings.clone().unwrap_or_default(),
            resume: None,
            progress: Progress::default(),
            warnings: Vec::new(),
        })
    }

    fn resume(request: &TrainRequest, path: PathBuf, written: Option<Settings>) -> Result<Start> {
        let checkpoint = Checkpoint::load(&path)?;
        let mut settings = TrainSettings::from_value(checkpoint.metadata.train_settings.clone())
            .map_err(|error| CheckpointError::invalid(&path, "metadata.train_settings", error.to_string()))?;
        let progress = Progress::of(&checkpoint, &settings.stages);
        let settings_file = request.settings.clone().unwrap_or_else(|| path.clone());
        if let Some(written) = &written {
            in_file(
                &settings_file,
                refuse_differences(&written.train, &settings, progress, &path),
            )?;
            settings.take_later_stages(&written.train, progress.stages_begun());
        }
        let mut warnings = Vec::new();
        let local = local_settings(&request.train_dir, written.as_ref(), &mut warnings)?;
        Ok(Start {
            settings,
            local,
            settings_file,
            resume: Some((checkpoint, path)),
            progress,
            warnings,
        })
    }

    /// Whether an earlier run has trained all stages, so that there is nothing left to do.
    pub fn is_complete(&self) -> bool {
        self.progress.stage >= self.settings.stages.len() && !self.local.test_only
    }
}

fn refuse_differences(
    written: &TrainSettings,
    saved: &TrainSettings,
    progress: Progress,
    path: &Path,
) -> Result<(), SettingsError> {
    let differences = written.differences_with_stages_begun(saved, progress.stages_begun());
    let Some(difference) = differences.first() else {
        return Ok(());
    };
    let message = format!(
        "is {} in the settings file but {} in {}, from which the run would go on; a run keeps its data, its model and the \
         stages it has begun: change it back, leave the settings file out, or choose another --train-dir",
        difference.shown_here(),
        difference.shown_there(),
        path.display()
    );
    Err(SettingsError::key(&difference.key, message))
}

/// From the train dir's `local_settings.yaml`, else from the settings file.
fn local_settings(train_dir: &Path, written: Option<&Settings>, warnings: &mut Vec<String>) -> Result<LocalSettings> {
    let path = train_dir.join("local_settings.yaml");
    if path.exists() {
        let local = LocalSettings::load(&path)?;
        if let Some(written) = written {
            for difference in written.local.differences(&local) {
                warnings.push(format!(
                    "local.{} is {} in the settings file but {} in {}, which counts when a run is resumed",
                    difference.key.trim_start_matches("local."),
                    difference.shown_here(),
                    difference.shown_there(),
                    path.display()
                ));
            }
        }
        return Ok(local);
    }
    match written {
        Some(written) => Ok(written.local.clone()),
        None => Err(SettingsError::File {
            file: path.display().to_string(),
            message: "is missing, and no settings file was given that has a `local` section".into(),
        }
        .into()),
    }
}
