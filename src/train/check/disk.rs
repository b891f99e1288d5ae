//! Whether the checkpoints of a run will fit on the disk.

use super::memory::optimizer_tensors;
use super::plan::Plan;
use crate::settings::{LocalSettings, TrainSettings};
use crate::train::train_dir::existing_part;
use crate::train::{CheckpointPaths, TrainError};
use std::ffi::CString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// What the container and the pickle add for each tensor: headers, names, padding.
const BYTES_PER_TENSOR: u64 = 320;

/// Settings in the checkpoint, twice, and whatever else is small.
const SETTINGS_BYTES: u64 = 16 << 10;

/// In bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskNeed {
    /// A checkpoint with training state.
    pub checkpoint: u64,
    /// `best_model.pt`, which has none.
    pub model: u64,
    /// Checkpoints that stay: every `local.checkpoint_epochs` epochs, and at the end of each stage.
    pub kept: u64,
    /// What the run will add to the train dir at most.
    pub total: u64,
    /// What the file system has left.
    pub free: u64,
}

impl DiskNeed {
    /// Of what is left of a run after `epoch` completed epochs.
    ///
    /// # Errors
    /// The file system does not say how much is free.
    pub(super) fn new(
        plan: &Plan,
        settings: &TrainSettings,
        local: &LocalSettings,
        train_dir: &Path,
        epoch: u64,
    ) -> Result<DiskNeed, TrainError> {
        let network = &plan.network;
        let per_tensor = |tensors: u64| tensors * BYTES_PER_TENSOR;
        let model = network.state_bytes + per_tensor(network.tensors as u64) + SETTINGS_BYTES;
        let states = plan.stages.iter().zip(&settings.stages).map(|(stage, settings)| {
            let copies = optimizer_tensors(&settings.optimizer);
            // Each parameter has a count of its updates besides.
            copies * stage.learnable_parameters as u64 * 4 + per_tensor((copies + 1) * network.tensors as u64)
        });
        let checkpoint = model + states.max().unwrap_or(0);
        let last = epoch + plan.epochs_left() as u64;
        let last = local
            .runtime_limits
            .max_epochs_total
            .map_or(last, |limit| limit.min(last));
        let every = local.checkpoint_epochs.filter(|&every| every > 0);
        let permanent = every.map_or(0, |every| (last / every).saturating_sub(epoch / every));
        let stages = plan
            .stages
            .iter()
            .filter(|stage| stage.epochs_done < stage.epochs)
            .count() as u64;
        let keeps_best = plan.stages.iter().any(|stage| stage.early_stopping);
        let paths = CheckpointPaths::new(train_dir, None);
        let there = |path: &Path| fs::metadata(path).map_or(0, |metadata| metadata.len());
        let kept = permanent + stages;
        // The last one, and the next while it is written.
        let files = checkpoint.saturating_mul(kept.saturating_add(2));
        let total = files.saturating_add(if keeps_best { model } else { 0 });
        Ok(DiskNeed {
            checkpoint,
            model,
            kept,
            total: total.saturating_sub(there(&paths.latest()) + there(&paths.best())),
            free: free_bytes(existing_part(train_dir)).map_err(TrainError::io("find the free space of", train_dir))?,
        })
    }

    /// # Errors
    /// [`TrainError::DiskSpace`] when the file system has less than the run will write.
    pub(super) fn check(&self, train_dir: &Path, local: &LocalSettings) -> Result<(), TrainError> {
        if self.total <= self.free {
            return Ok(());
        }
        let every = local
            .checkpoint_epochs
            .map_or("at the end of each stage".into(), |every| {
                format!("at the end of each stage and every {every} epochs (local.checkpoint_epochs)")
            });
        Err(TrainError::DiskSpace {
            path: train_dir.to_owned(),
            message: format!(
                "its checkpoints will take {:.1} GB ({} that are kept, {every}, of {:.1} MB each, and model_latest.pt twice \
                 while it is written), but {:.1} GB are free",
                self.total as f64 / 1e9,
                self.kept,
                self.checkpoint as f64 / 1e6,
                self.free as f64 / 1e9,
            ),
        })
    }
}

/// What an unprivileged user may still write to the file system of `folder`. Quotas are not seen.
fn free_bytes(folder: &Path) -> io::Result<u64> {
    let folder = match folder.as_os_str().is_empty() {
        true => Path::new("."),
        false => folder,
    };
    let name = CString::new(folder.as_os_str().as_bytes())?;
    // SAFETY: `statvfs` is plain numbers, for which zeros are valid.
    let mut stat: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: a path that ends in a null, and a place for the answer.
    match unsafe { libc::statvfs(name.as_ptr(), &mut stat) } {
        0 => Ok(stat.f_bavail * stat.f_frsize),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_is_free_is_refused_with_the_numbers() {
        let local = LocalSettings::from_value(
            crate::settings::yaml::read("{device: cpu, checkpoint_epochs: 10}")
                .unwrap()
                .value,
        );
        let local = local.unwrap();
        let mut need = DiskNeed {
            checkpoint: 1_500_000_000,
            model: 500_000_000,
            kept: 46,
            total: 72_000_000_000,
            free: 72_000_000_000,
        };
        need.check(Path::new("run"), &local).unwrap();
        need.free -= 1;
        let message = need.check(Path::new("run"), &local).unwrap_err().to_string();
        for part in [
            "run",
            "72.0 GB",
            "46 that are kept",
            "every 10 epochs",
            "1500.0 MB each",
        ] {
            assert!(message.contains(part), "{part}: {message}");
        }
    }

    #[test]
    fn free_space_is_that_of_the_file_system() {
        let folder = tempfile::tempdir().unwrap();
        assert!(free_bytes(folder.path()).unwrap() > 0);
        assert!(free_bytes(Path::new("")).unwrap() > 0);
        assert!(free_bytes(&folder.path().join("missing")).is_err());
    }
}
