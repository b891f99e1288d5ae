//! The first layer of the embedding, seeded with a reduced basis of clean waveforms (Dingo's procedure, on all ranks).

use super::Corpus;
use crate::data::{Share, SvdBasis};
use crate::settings::{SettingsError, SvdSettings, TrainSettings};
use crate::spmd::World;
use anyhow::{Context, Result};
use std::ops::Range;
use tch::Tensor;

/// The basis of one detector.
pub struct DetectorBasis {
    pub detector: String,
    pub basis: SvdBasis,
}

/// This rank's part of a range of samples: consecutive, and as many as any other rank's to within one.
fn share(world: &World, samples: Range<usize>) -> Range<usize> {
    let edge = |rank: usize| samples.start + samples.len() * rank / world.size;
    edge(world.rank)..edge(world.rank + 1)
}

/// Builds and tests the bases, one per detector, from the dataset's first samples: the training samples, then those for
/// validation. Each rank makes its share of the waveforms. All ranks call this together and get the same bases.
///
/// # Errors
/// Waveforms that cannot be read, or a failing collective.
pub fn embedding_bases(
    world: &World,
    corpus: &Corpus,
    settings: &TrainSettings,
    seed: u64,
) -> Result<Vec<DetectorBasis>> {
    let svd = &settings.model.embedding.svd;
    let stage = &settings.stages[0];
    log::info!("\nBuilding SVD for initialization of embedding network.");
    log::info!("Generating waveforms for embedding network SVD initialization.");
    let pipeline = world.agree(corpus.pipeline(settings, stage, seed).map_err(Into::into))?;
    let training = 0..svd.num_training_samples;
    let validation = training.end..training.end + svd.num_validation_samples;
    let waveforms = |samples: &Range<usize>| {
        let own: Vec<usize> = share(world, samples.clone()).collect();
        world.agree(pipeline.clean_waveforms(&own).map_err(Into::into))
    };
    let training_waveforms = waveforms(&training)?;
    let validation_waveforms = waveforms(&validation)?;
    let own: Vec<usize> = share(world, validation.clone()).collect();
    let parameters = world.agree(pipeline.clean_parameters(&own).map_err(Into::into))?;

    log::info!("Generating SVD basis for ifo:");
    let mut bases = Vec::new();
    for (detector, name) in pipeline.detectors().enumerate() {
        let min_index = corpus.dataset.domain().min_index();
        let rows = part(world, &training_waveforms[detector], &training);
        let mut basis = SvdBasis::compute(rows, min_index, svd.size, seed as u32, world)
            .with_context(|| format!("the embedding's SVD for detector {name}"))?;
        basis.validate(
            part(world, &validation_waveforms[detector], &validation),
            &parameters,
            world,
        )?;
        log::info!(
            "...{name} done. Mismatches on validation waveforms:\n{}",
            basis.summary()
        );
        bases.push(DetectorBasis {
            detector: name.to_owned(),
            basis,
        });
    }
    Ok(bases)
}

fn part<'a>(world: &World, waveforms: &'a Tensor, samples: &Range<usize>) -> Share<'a> {
    Share {
        waveforms,
        first: share(world, samples.clone()).start - samples.start,
        total: samples.len(),
    }
}

/// Whether the dataset can give as many samples as the basis asks for, and the basis as many elements.
///
/// # Errors
/// [`SettingsError`] naming the key under `model.embedding_kwargs.svd`.
pub fn check(svd: &SvdSettings, dataset_len: usize, bins: usize) -> Result<(), SettingsError> {
    let wanted = svd.num_training_samples + svd.num_validation_samples;
    let refuse = |key: &str, message: String| {
        Err(SettingsError::key(
            format!("model.embedding_kwargs.svd.{key}"),
            &message,
        ))
    };
    if wanted > dataset_len {
        return refuse(
            "num_training_samples",
            format!(
                "{} and num_validation_samples: {} make {wanted} samples, but the waveform dataset has {dataset_len}",
                svd.num_training_samples, svd.num_validation_samples
            ),
        );
    }
    let most = svd.num_training_samples.min(bins);
    if svd.size > most {
        return refuse(
            "size",
            format!(
                "{} is more than the {most} elements that {} samples of {bins} bins can give",
                svd.size, svd.num_training_samples
            ),
        );
    }
    Ok(())
}
