//! A run before it is started: everything that would be refused later is refused now, on any machine, without ranks, and
//! with nothing written.

mod disk;
mod memory;
mod plan;

pub use disk::DiskNeed;
pub use memory::MemoryEstimate;
pub use plan::{DataPlan, NetworkPlan, Plan, StagePlan};

use super::prepare::{histories, load_model, resume_stage};
use super::seeding;
use super::train_dir::check_train_dir;
use super::{in_file, Corpus, Progress, Start, TrainRequest};
use crate::checkpoint::Checkpoint;
use crate::nn::BuildContext;
use crate::posterior::{self, PosteriorModel};
use crate::settings::TrainSettings;
use anyhow::Result;
use std::path::{Path, PathBuf};

/// What is to be checked.
#[derive(Debug, Clone)]
pub struct CheckRequest {
    pub train: TrainRequest,
    /// Ranks that are to be started; `local.num_gpus` where it is not said.
    pub ranks: Option<usize>,
}

/// What a run would do.
#[derive(Debug)]
pub struct CheckReport {
    pub train_dir: PathBuf,
    pub ranks: usize,
    /// Where the settings were read from.
    pub settings_file: PathBuf,
    /// The checkpoint that it would go on from.
    pub resume: Option<ResumePoint>,
    /// None when all stages are complete.
    pub plan: Option<Plan>,
    /// What the user should know but need not mend.
    pub warnings: Vec<String>,
}

/// Where a checkpoint stands.
#[derive(Debug, Clone)]
pub struct ResumePoint {
    pub path: PathBuf,
    /// Epochs completed.
    pub epoch: u64,
    /// Optimizer steps made.
    pub iteration: u64,
    pub progress: Progress,
}

/// Goes through all that a run does before its first epoch, in the same order, but for what takes ranks or long. Makes
/// nothing that stays.
///
/// # Errors
/// What the run would be refused with, and too little space on the disk for its checkpoints.
pub fn check(request: &CheckRequest) -> Result<CheckReport> {
    let train_dir = &request.train.train_dir;
    let mut start = Start::read(&request.train)?;
    let ranks = request.ranks.unwrap_or(start.local.num_gpus).max(1);
    let resume = start.resume.as_ref().map(|(checkpoint, path)| ResumePoint {
        path: path.clone(),
        epoch: checkpoint.epoch,
        iteration: checkpoint.iteration,
        progress: start.progress,
    });
    let plan = match start.is_complete() {
        true => None,
        false => Some(plan(&mut start, train_dir, ranks)?),
    };
    let mut warnings = start.warnings;
    if let Some(plan) = &plan {
        warnings.extend(plan.warnings(&start.local, ranks));
    }
    Ok(CheckReport {
        train_dir: train_dir.clone(),
        ranks,
        settings_file: start.settings_file,
        resume,
        plan,
        warnings,
    })
}

fn plan(start: &mut Start, train_dir: &Path, ranks: usize) -> Result<Plan> {
    let Start {
        settings,
        local,
        settings_file,
        resume,
        progress,
        ..
    } = start;
    let (resume, progress) = (resume.as_ref(), *progress);
    in_file(settings_file, settings.check_batch_sizes(ranks))?;
    check_train_dir(train_dir)?;
    let corpus = Corpus::survey(settings, settings_file, local, progress, ranks)?;
    let model = network(settings, settings_file, resume, &corpus)?;
    resume_stage(settings, progress, resume, &corpus, model.as_ref())?;
    histories(train_dir, local, resume)?;
    let epoch = resume.map_or(0, |(checkpoint, _)| checkpoint.epoch);
    let plan = Plan::new(settings, local, &corpus, model.as_ref(), progress, ranks);
    let disk = DiskNeed::new(&plan, settings, local, train_dir, epoch)?;
    disk.check(train_dir, local)?;
    Ok(Plan {
        disk: Some(disk),
        ..plan
    })
}

/// The network, with the checkpoint's values or none.
fn network(
    settings: &TrainSettings,
    settings_file: &Path,
    resume: Option<&(Checkpoint, PathBuf)>,
    corpus: &Corpus,
) -> Result<Box<dyn PosteriorModel>> {
    let context = BuildContext {
        without_values: true,
        ..BuildContext::default()
    };
    if let Some((checkpoint, path)) = resume {
        return load_model(settings, checkpoint, path, &context);
    }
    let svd = &settings.model.embedding.svd;
    if !svd.no_init {
        let domain = corpus.dataset.domain();
        let bins = domain.num_bins() - domain.min_index();
        in_file(settings_file, seeding::check(svd, corpus.dataset.len(), bins))?;
    }
    in_file(settings_file, posterior::build(&settings.model, None, &context))
}
