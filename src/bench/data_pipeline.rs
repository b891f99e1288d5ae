//! How fast one thread of the data pipeline is.

use super::subject::prepare_products;
use crate::data::throughput::{self, Throughput};
use crate::settings::Settings;
use crate::spmd::World;
use crate::torch_ext::threads::limit_this_thread;
use crate::train::{Corpus, Progress};
use anyhow::Result;
use std::path::Path;
use std::time::Duration;

/// How fast one thread makes batches of the first stage of a settings file. `batch_size`: else the stage's.
///
/// # Errors
/// As a training with these settings.
pub fn data_pipeline(world: &World, settings: &Path, batch_size: Option<usize>, time: Duration) -> Result<Throughput> {
    let Settings { mut train, local } = world.agree(Settings::load(settings).map_err(Into::into))?;
    prepare_products(world, &local)?;
    let corpus = Corpus::open(world, &mut train, settings, &local, Progress::default())?;
    let stage = &train.stages[0];
    let pipeline = world.agree(
        corpus
            .pipeline(&train, stage, local.seed.unwrap_or(0))
            .map_err(Into::into),
    )?;
    limit_this_thread(1);
    let measured = throughput::measure(&pipeline, batch_size.unwrap_or(stage.batch_size), time);
    world.agree(measured.map_err(Into::into))
}
