//! What is measured: a network as training would train it, with its data.

use super::{synthetic, BenchError, BenchRequest, Configuration};
use crate::data::{Batch, DataError, Loader};
use crate::posterior::{self, PosteriorModel};
use crate::settings::{LocalSettings, Settings};
use crate::spmd::World;
use crate::torch_ext::set_float32_matmul_precision;
use crate::train::{
    build_context, choose_matrix_library, Corpus, Interrupts, Optimizer, Progress, Stepper, DATA_THREADS,
};
use anyhow::{Context, Result};
use tch::{Device, Tensor};

/// Batches that a measurement of steps takes in turn.
const KEPT_BATCHES: usize = 2;

/// What a settings file trains, in all the configurations that are measured.
pub struct Subject {
    settings: Settings,
    /// None for synthetic data.
    corpus: Option<Corpus>,
    seed: u64,
}

/// One configuration of it, ready for its first step.
pub struct Trainee {
    pub model: Box<dyn PosteriorModel>,
    pub stepper: Stepper,
    pub interrupts: Interrupts,
    /// Of the training samples; none for synthetic data.
    pub loader: Option<Loader>,
    /// With what was configured.
    pub settings: Settings,
    pub device: Device,
}

impl Subject {
    /// Reads settings and opens data; with `synthetic` only settings are read. All ranks call this together.
    ///
    /// # Errors
    /// What is wrong with them, or with the request.
    pub fn open(world: &World, request: &BenchRequest) -> Result<Subject> {
        let mut settings = world.agree(Settings::load(&request.settings).map_err(Into::into))?;
        prepare_products(world, &settings.local)?;
        let seed = settings.local.seed.unwrap_or(0);
        let device = world.use_device(settings.local.device);
        world.agree(device.with_context(|| request.settings.display().to_string()))?;
        world.connect_devices(settings.local.collective_timeout)?;
        if request.synthetic {
            let complete = synthetic::complete(&mut settings.train, request);
            world.agree(complete.with_context(|| request.settings.display().to_string()))?;
            let corpus = None;
            return Ok(Subject { settings, corpus, seed });
        }
        let only_real = match request.bins {
            Some(_) => Err(BenchError::request("--bins is for --synthetic: a dataset has its own")),
            None => Ok(()),
        };
        world.agree(only_real.map_err(Into::into))?;
        let Settings { train, local } = &mut settings;
        let corpus = Corpus::open(world, train, &request.settings, local, Progress::default())?;
        let corpus = Some(corpus);
        Ok(Subject { settings, corpus, seed })
    }

    /// Synthetic data for these settings, which are complete.
    pub fn synthetic(settings: Settings) -> Subject {
        Subject {
            settings,
            corpus: None,
            seed: 0,
        }
    }

    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// That of the first stage, over all ranks.
    pub fn batch_size(&self) -> usize {
        self.settings.train.stages[0].batch_size
    }

    /// Builds the network, with random first-layer weights: the SVD that training seeds them with changes no time.
    ///
    /// # Errors
    /// Sizes that do not fit.
    pub fn trainee(&self, world: &World, configuration: &Configuration) -> Result<Trainee> {
        let mut settings = self.settings.clone();
        configuration.apply(&mut settings.train, &mut settings.local);
        let checked = settings.train.check_batch_sizes(world.size).map_err(Into::into);
        world.agree(checked)?;
        let stage = &settings.train.stages[0];
        let loader = match &self.corpus {
            None => None,
            Some(corpus) => {
                let threads = settings.local.data_threads_per_rank(world.size).unwrap_or(DATA_THREADS);
                let loaders = corpus.loaders(world, &settings.train, stage, threads, self.seed);
                let checked = loaders.map_err(Into::into).and_then(|loaders| {
                    Trainee::full_batches(&loaders.train, stage.batch_size)?;
                    Ok(loaders.train)
                });
                Some(world.agree(checked)?)
            }
        };
        let context = build_context(world, &settings.local, self.seed);
        let model = posterior::build(&settings.train.model, None, &context).map_err(Into::into);
        let model = world.agree(model)?;
        if let Some(freeze) = stage.freeze_rb_layer {
            model.state().set_requires_grad("layers_rb", !freeze);
        }
        let optimizer = Optimizer::new(&stage.optimizer, model.state().parameters())?;
        let stepper = Stepper::new(world, model.state(), optimizer, stage, &settings.local)?;
        Ok(Trainee {
            model,
            stepper,
            interrupts: Interrupts::never(),
            loader,
            settings,
            device: world.device(),
        })
    }
}

/// Matrix products as training with these settings makes them.
///
/// # Errors
/// What libtorch says.
pub fn prepare_products(world: &World, local: &LocalSettings) -> Result<()> {
    if let Some(precision) = local.float32_matmul_precision {
        set_float32_matmul_precision(precision.name())?;
    }
    choose_matrix_library(world, local.matrix_library, None)
}

impl Trainee {
    /// Over all ranks.
    pub fn batch_size(&self) -> usize {
        self.settings.train.stages[0].batch_size
    }

    /// Samples of an optimizer step.
    pub fn effective_batch_size(&self) -> usize {
        self.batch_size() * self.stepper.passes
    }

    /// Training samples of the dataset.
    pub fn dataset_len(&self) -> Option<usize> {
        self.loader.as_ref().map(Loader::len)
    }

    /// Full batches of an epoch.
    ///
    /// # Errors
    /// If a dataset has not one.
    pub fn full_batches(loader: &Loader, batch_size: usize) -> Result<usize> {
        match loader.len() / batch_size {
            0 => {
                let message = format!(
                    "a batch of {batch_size} is more than the dataset's {} training samples: choose a smaller one, or --synthetic",
                    loader.len()
                );
                Err(BenchError::request(message).into())
            }
            full => Ok(full),
        }
    }

    /// A few batches to be used again and again, so that no data thread works while steps are measured.
    ///
    /// # Errors
    /// Data that cannot be read, or fewer samples than a batch has.
    pub fn kept_batches(&self, world: &World) -> Result<Vec<Batch>> {
        match &self.loader {
            None => (0..KEPT_BATCHES)
                .map(|number| synthetic::batch(world, &self.settings, number))
                .collect(),
            Some(loader) => {
                let full = Self::full_batches(loader, self.batch_size())?;
                let batches = loader.batches(1, 0..full.min(KEPT_BATCHES));
                Ok(batches.collect::<Result<_, _>>()?)
            }
        }
    }
}

/// These batches in turn, for ever.
pub fn again_and_again(batches: &[Batch]) -> impl Iterator<Item = Result<Batch, DataError>> + '_ {
    batches.iter().cycle().map(|batch| {
        Ok(Batch {
            theta: batch.theta.shallow_clone(),
            context: batch.context.iter().map(Tensor::shallow_clone).collect(),
            ..*batch
        })
    })
}
