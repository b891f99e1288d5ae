//! The data of a run: opened and checked for all its stages before anything is trained or written.

use super::in_file;
use super::progress::Progress;
use super::stage_checks::check_stage;
use crate::data::{
    copy_to_node, train_test_split, AsdDataset, DataError, DetectorNetwork, Loader, LoaderOptions, Pipeline,
    TrainTestSplit, WaveformDataset,
};
use crate::settings::{LocalSettings, StageSettings, TrainSettings};
use crate::spmd::World;
use anyhow::Result;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The waveforms, their split into training and test samples, and the noise of each stage still to be trained.
pub struct Corpus {
    pub dataset: Arc<WaveformDataset>,
    split: TrainTestSplit,
    detectors: Vec<String>,
    /// By path; stages may share one.
    asds: HashMap<PathBuf, Arc<AsdDataset>>,
}

/// Batches for one stage.
pub struct StageLoaders {
    pub train: Loader,
    pub test: Loader,
}

impl Corpus {
    /// Opens the waveforms (copied to `local_cache_path` first, once a node) and the ASDs of all stages from
    /// `progress.stage` on. Completes the settings with what follows from the data: standardization, context parameters and
    /// the network's sizes; `settings_file` is for messages. All ranks call this together.
    ///
    /// # Errors
    /// Files that cannot be used, or settings that ask for what they do not hold.
    pub fn open(
        world: &World,
        settings: &mut TrainSettings,
        settings_file: &Path,
        local: &LocalSettings,
        progress: Progress,
    ) -> Result<Corpus> {
        let path = match &local.local_cache_path {
            None => settings.data.waveform_dataset_path.clone(),
            // The barrier inside `agree` keeps the other ranks of a node from opening the copy before it is complete.
            Some(folder) => {
                let copied = copy_to_node(&settings.data.waveform_dataset_path, folder, world.local_rank == 0);
                world.agree(copied.map_err(Into::into))?
            }
        };
        let opened = WaveformDataset::open(&path, &settings.data, local.leave_waveforms_on_disk);
        let corpus = Self::of(opened, settings, local, progress, world.size);
        world.agree(in_file(settings_file, corpus))
    }

    /// Finds what is wrong with data and settings as [`Corpus::open`] does for this number of ranks, but copies nothing and
    /// does not read all of a large dataset: batches cannot be had.
    ///
    /// # Errors
    /// As [`Corpus::open`].
    pub fn survey(
        settings: &mut TrainSettings,
        settings_file: &Path,
        local: &LocalSettings,
        progress: Progress,
        ranks: usize,
    ) -> Result<Corpus> {
        let surveyed = WaveformDataset::survey(&settings.data.waveform_dataset_path, &settings.data);
        in_file(settings_file, Self::of(surveyed, settings, local, progress, ranks))
    }

    fn of(
        dataset: Result<WaveformDataset, DataError>,
        settings: &mut TrainSettings,
        local: &LocalSettings,
        progress: Progress,
        ranks: usize,
    ) -> Result<Corpus, DataError> {
        let corpus = Self::with_noise(Arc::new(dataset?), settings, progress)?;
        let apart = if local.sync_batch_norm { 1 } else { ranks };
        let to_come = settings.stages.iter().enumerate().skip(progress.stage);
        for (number, stage) in to_come {
            check_stage(number, stage, &settings.model, corpus.split.train.len(), apart)?;
        }
        Ok(corpus)
    }

    /// Splits the dataset and opens the ASDs that go with it.
    fn with_noise(
        dataset: Arc<WaveformDataset>,
        settings: &mut TrainSettings,
        progress: Progress,
    ) -> Result<Corpus, DataError> {
        let split = train_test_split(dataset.len(), settings.data.train_fraction);
        check_split(&split, settings.data.train_fraction)?;
        // A triangular detector has three interferometers, each with its own noise.
        let network = DetectorNetwork::new(&settings.data.detectors, settings.data.ref_time)?;
        let detectors: Vec<String> = network.names().map(String::from).collect();
        let mut asds = HashMap::new();
        for stage in settings
            .stages
            .iter()
            .skip(progress.stage.min(settings.stages.len() - 1))
        {
            let path = &stage.asd_dataset_path;
            if !asds.contains_key(path) {
                let opened = AsdDataset::open(path, &detectors, dataset.domain())?;
                asds.insert(path.clone(), Arc::new(opened));
            }
        }
        let corpus = Corpus {
            dataset,
            split,
            detectors,
            asds,
        };
        corpus.complete_settings(settings, progress)?;
        Ok(corpus)
    }

    /// What Dingo adds to the settings before it builds a network.
    fn complete_settings(&self, settings: &mut TrainSettings, progress: Progress) -> Result<(), DataError> {
        settings.set_context_parameters(settings.data.context_parameters.clone());
        let stage = &settings.stages[progress.stage.min(settings.stages.len() - 1)];
        // Its noise does not matter here; making it also checks detectors and priors.
        let pipeline = self.pipeline(settings, stage, 0)?;
        settings.set_standardization(pipeline.standardization());
        let domain = self.dataset.domain();
        let input_dims = [pipeline.detectors().len(), 3, domain.num_bins() - domain.min_index()];
        settings.complete_model(settings.data.inference_parameters.len(), input_dims);
        Ok(())
    }

    /// The names of the detectors, in the order of the strain; a triangular one counts as three.
    pub fn detectors(&self) -> &[String] {
        &self.detectors
    }

    /// How many samples train, and how many test.
    pub fn split_lengths(&self) -> [usize; 2] {
        [self.split.train.len(), self.split.test.len()]
    }

    /// Batches of an epoch of training.
    pub fn batches_per_epoch(&self, stage: &StageSettings) -> usize {
        self.split.train.len().div_ceil(stage.batch_size)
    }

    /// The transforms of a stage: its noise, everything else the run's.
    ///
    /// # Errors
    /// A detector or prior that the data cannot serve.
    pub fn pipeline(&self, settings: &TrainSettings, stage: &StageSettings, seed: u64) -> Result<Pipeline, DataError> {
        Pipeline::new(
            self.dataset.clone(),
            self.asds[&stage.asd_dataset_path].clone(),
            &settings.data,
            seed,
        )
    }

    /// The batches of a stage for this rank.
    ///
    /// # Errors
    /// As [`Corpus::pipeline`].
    pub fn loaders(
        &self,
        world: &World,
        settings: &TrainSettings,
        stage: &StageSettings,
        threads: usize,
        seed: u64,
    ) -> Result<StageLoaders, DataError> {
        let pipeline = Arc::new(self.pipeline(settings, stage, seed)?);
        let loader = |indices: &[usize], shuffle: bool| {
            let options = LoaderOptions {
                batch_size: stage.batch_size,
                rank: world.rank,
                world_size: world.size,
                shuffle,
                seed,
                threads,
            };
            Loader::new(pipeline.clone(), indices.into(), options).on(world.device())
        };
        Ok(StageLoaders {
            train: loader(&self.split.train, true),
            test: loader(&self.split.test, false),
        })
    }
}

fn check_split(split: &TrainTestSplit, train_fraction: f64) -> Result<(), DataError> {
    let (train, test) = (split.train.len(), split.test.len());
    if train > 0 && test > 0 {
        return Ok(());
    }
    let message = format!(
        "{train_fraction} of {} samples leaves {train} to train on and {test} to test: both must have some",
        train + test
    );
    Err(DataError::Setting {
        key: "data.train_fraction".into(),
        message,
    })
}
