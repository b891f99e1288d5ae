//! What happens between reading the settings and the first stage.

use super::basis_cache;
use super::interrupts::Interrupts;
use super::matrix_library;
use super::seeding::{self, DetectorBasis};
use super::session::Session;
use super::signals::Signals;
use super::snapshot::{Identity, Recorder};
use super::stage_state::StageState;
use super::train_dir::check_train_dir;
use super::{in_file, CheckpointPaths, Corpus, History, Progress, RuntimeLimits, Start, TrainError};
use crate::checkpoint::{replace_file, Checkpoint, CheckpointError};
use crate::nn::BuildContext;
use crate::posterior::{self, PosteriorModel};
use crate::settings::{LocalSettings, TrainSettings};
use crate::spmd::World;
use crate::torch_ext::{float32_matmul_precision, set_float32_matmul_precision, RankStatistics};
use anyhow::{Context, Result};
use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;
use tch::Tensor;

impl<'w> Session<'w> {
    /// Opens the data, builds or loads the network, and only then makes the train dir. All ranks call this together.
    ///
    /// # Errors
    /// Whatever is wrong with settings, data or checkpoint; the train dir is left as it was.
    pub fn prepare(
        world: &'w World,
        start: Start,
        train_dir: &Path,
        signals: Signals,
        started: Instant,
    ) -> Result<Session<'w>> {
        let Start {
            mut settings,
            mut local,
            settings_file,
            resume,
            progress,
            warnings,
        } = start;
        warnings.iter().for_each(|warning| log::warn!("{warning}"));
        world.agree(in_file(&settings_file, settings.check_batch_sizes(world.size)))?;
        world.agree(on_root(world, || Ok(check_train_dir(train_dir)?)))?;
        world.agree(in_file(&settings_file, world.use_device(local.device)))?;
        report_ranks(world, &local)?;
        if let Some(precision) = local.float32_matmul_precision {
            set_float32_matmul_precision(precision.name())?;
        }

        let checkpoint = resume.as_ref().map(|(checkpoint, _)| checkpoint);
        matrix_library::choose(world, local.matrix_library, checkpoint)?;
        let seed = agree_on_seed(world, checkpoint, &local)?;
        let seed_is_given = local.seed.is_some();
        local.set_seed(seed);
        let corpus = Corpus::open(world, &mut settings, &settings_file, &local, progress)?;
        // Not before: one rank of a node may have copied the waveforms for the others, however long that takes.
        world.watch_collectives(local.collective_timeout)?;
        world.connect_devices(local.collective_timeout)?;

        let epoch = checkpoint.map_or(0, |checkpoint| checkpoint.epoch);
        let iteration = checkpoint.map_or(0, |checkpoint| checkpoint.iteration);
        let context = build_context(world, &local, seed);
        let (model, bases) = match &resume {
            Some((checkpoint, path)) => {
                log::info!("Resuming training run from {} after epoch {epoch}.", path.display());
                (
                    world.agree(load_model(&settings, checkpoint, path, &context))?,
                    Vec::new(),
                )
            }
            None => {
                log::info!("Beginning new training run.");
                let bases = new_bases(
                    world,
                    &settings,
                    &settings_file,
                    &corpus,
                    train_dir,
                    (seed, seed_is_given),
                )?;
                (
                    new_model(world, &settings, &settings_file, &corpus, &bases, &context)?,
                    bases,
                )
            }
        };
        let resumed = resume_stage(&settings, progress, resume.as_ref(), &corpus, model.as_ref());
        let resumed = world.agree(resumed)?;
        let recorder = on_root(world, || {
            open_train_dir(train_dir, &local, resume.as_ref(), progress, &bases, world.gpu_report())
        });
        let recorder = world.agree(recorder)?;
        let mut identity = Identity::new(corpus.dataset.settings().clone(), settings, seed, checkpoint);
        // Unlike what else is local, it changes the numbers: as in Dingo, it is recorded with the model.
        let precision = float32_matmul_precision()?;
        identity
            .other_metadata
            .insert("float32_matmul_precision".into(), precision.into());
        let limits = RuntimeLimits::new(&local.runtime_limits, epoch, started);
        let interrupts = Interrupts::new(world, signals, &limits, local.checkpoint_interval());
        Ok(Session {
            world,
            local,
            identity,
            corpus,
            model,
            recorder,
            limits,
            interrupts,
            progress,
            epoch,
            iteration,
            resumed,
        })
    }
}

/// What one rank does for all.
fn on_root<T>(world: &World, work: impl FnOnce() -> Result<T>) -> Result<Option<T>> {
    world.is_root().then(work).transpose()
}

/// What the user should know of how ranks and settings fit together.
fn report_ranks(world: &World, local: &LocalSettings) -> Result<()> {
    let plural = |count: usize, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
    log::info!(
        "Training on {} ({}).",
        plural(world.size, "rank"),
        plural(world.nodes, "node")
    );
    world.topology()?.iter().for_each(|line| log::info!("{line}"));
    if local.num_gpus_is_given() && local.ranks() != world.size {
        let nodes = match local.num_nodes {
            1 => String::new(),
            nodes => format!(" and local.num_nodes {nodes}"),
        };
        log::warn!(
            "local.num_gpus is {}{nodes}, but there {} {}: the number of ranks counts. Start {} with mpirun -np {} if that was meant.",
            local.num_gpus,
            if world.size == 1 { "is" } else { "are" },
            plural(world.size, "rank"),
            plural(local.ranks(), "rank"),
            local.ranks()
        );
    }
    Ok(())
}

/// The checkpoint's, else the settings', else a new one; the same on all ranks.
fn agree_on_seed(world: &World, checkpoint: Option<&Checkpoint>, local: &LocalSettings) -> Result<u64> {
    let saved = checkpoint.and_then(|checkpoint| checkpoint.spmd.as_ref()?.get("seed")?.as_u64());
    let drawn = || RandomState::new().hash_one(std::process::id());
    // Half the range, so that every reader of YAML can hold it as a signed number.
    let seed = saved.or(local.seed).unwrap_or_else(|| drawn() >> 1);
    let seed = world.broadcast_value(seed as i64)? as u64;
    log::info!("Seed: {seed}");
    Ok(seed)
}

/// BatchNorm takes the statistics of the whole batch, over all ranks, unless the settings say otherwise.
pub fn build_context(world: &World, local: &LocalSettings, seed: u64) -> BuildContext {
    let synchronized = world.size > 1 && local.sync_batch_norm;
    let ranks: Option<Arc<dyn RankStatistics>> = synchronized.then(|| Arc::new(world.network_collectives()) as _);
    BuildContext {
        device: world.device(),
        seed,
        batch_norm_ranks: ranks,
        ..BuildContext::default()
    }
}

/// What the first layer of a new network starts from, if the settings say so. `seed`: and whether the user gave it.
fn new_bases(
    world: &World,
    settings: &TrainSettings,
    settings_file: &Path,
    corpus: &Corpus,
    train_dir: &Path,
    (seed, seed_is_given): (u64, bool),
) -> Result<Vec<DetectorBasis>> {
    let svd = &settings.model.embedding.svd;
    if svd.no_init {
        return Ok(Vec::new());
    }
    let domain = corpus.dataset.domain();
    let bins = domain.num_bins() - domain.min_index();
    world.agree(in_file(settings_file, seeding::check(svd, corpus.dataset.len(), bins)))?;
    basis_cache::bases(world, corpus, settings, train_dir, seed, seed_is_given)
}

fn new_model(
    world: &World,
    settings: &TrainSettings,
    settings_file: &Path,
    corpus: &Corpus,
    bases: &[DetectorBasis],
    context: &BuildContext,
) -> Result<Box<dyn PosteriorModel>> {
    let min_index = corpus.dataset.domain().min_index();
    let v: Vec<Tensor> = bases
        .iter()
        .map(|basis| basis.basis.network_rows(min_index))
        .collect::<Result<_, _>>()?;
    let initial = (!v.is_empty()).then_some(v.as_slice());
    let model = posterior::build(&settings.model, initial, context);
    world.agree(in_file(settings_file, model))
}

pub(super) fn load_model(
    settings: &TrainSettings,
    checkpoint: &Checkpoint,
    path: &Path,
    context: &BuildContext,
) -> Result<Box<dyn PosteriorModel>> {
    let model = in_file(path, posterior::build(&settings.model, None, context))?;
    let loaded = model.state().load(&checkpoint.model_state);
    loaded.map_err(|error| CheckpointError::invalid(path, "model_state_dict", error.to_string()))?;
    Ok(model)
}

/// The state of the stage that the checkpoint was written inside of; `None` at the beginning of one.
pub(super) fn resume_stage(
    settings: &TrainSettings,
    progress: Progress,
    resume: Option<&(Checkpoint, PathBuf)>,
    corpus: &Corpus,
    model: &dyn PosteriorModel,
) -> Result<Option<StageState>> {
    let (Some((checkpoint, path)), true) = (resume, progress.is_inside_stage()) else {
        return Ok(None);
    };
    let stage = &settings.stages[progress.stage];
    let mut state = StageState::new(stage, model.state().parameters())?;
    state.restore(checkpoint, path, progress, corpus.batches_per_epoch(stage))?;
    Ok(Some(state))
}

/// Makes the train dir if it is not there, and puts into it what the run begins with.
fn open_train_dir(
    train_dir: &Path,
    local: &LocalSettings,
    resume: Option<&(Checkpoint, PathBuf)>,
    progress: Progress,
    bases: &[DetectorBasis],
    gpus: Option<String>,
) -> Result<Recorder> {
    fs::create_dir_all(train_dir).map_err(TrainError::io("create", train_dir))?;
    let path = train_dir.join("local_settings.yaml");
    if resume.is_none() || !path.exists() {
        let written = replace_file(&path, |out| out.write_all(local.to_yaml().as_bytes()));
        written.map_err(TrainError::io("write", &path))?;
    }
    if let Some(report) = gpus {
        let path = train_dir.join("info_gpus.txt");
        let written = replace_file(&path, |out| out.write_all(report.as_bytes()));
        written.map_err(TrainError::io("write", &path))?;
    }
    for basis in bases {
        let path = basis_cache::path(train_dir, &basis.detector);
        basis
            .basis
            .write(&path)
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    let paths = CheckpointPaths::new(train_dir, local.checkpoint_epochs);
    let (history, noise_scale) = histories(train_dir, local, resume)?;
    let Some((checkpoint, path)) = resume else {
        return Ok(Recorder::new(paths, history, noise_scale, None));
    };
    let is_latest = *path == paths.latest();
    let latest = is_latest.then_some((checkpoint.epoch, progress.batches));
    Ok(Recorder::new(paths, history, noise_scale, latest))
}

/// The history, and that of the noise scale where it is asked for. Only reads.
pub(super) fn histories(
    train_dir: &Path,
    local: &LocalSettings,
    resume: Option<&(Checkpoint, PathBuf)>,
) -> Result<(History, Option<History>), TrainError> {
    let open = |name: &str| match resume {
        None => History::create(train_dir, name),
        Some((checkpoint, _)) => History::resume(train_dir, name, checkpoint.epoch),
    };
    let noise_scale = local.gradient_noise_scale.then(|| open(History::NOISE_SCALE));
    Ok((open(History::NAME)?, noise_scale.transpose()?))
}
