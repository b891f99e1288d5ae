//! The embedding's bases in the train dir: a run that is begun once more with the same data and settings takes them from
//! there instead of making them again.

use super::seeding::{self, DetectorBasis};
use super::Corpus;
use crate::data::{DataError, SvdBasis};
use crate::settings::TrainSettings;
use crate::spmd::{Collectives, World};
use anyhow::Result;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;
use tch::{Device, Kind, Tensor};

/// Where a basis lies, which is where Dingo puts it too.
pub fn path(train_dir: &Path, detector: &str) -> PathBuf {
    train_dir.join(format!("svd_{detector}.hdf5"))
}

/// The bases for a new run: those of the train dir, if they were made from the same, else new ones. `seed` is what they
/// depend on, `None` when the user left it open: then those of any seed are as good. All ranks call this together and get the
/// same bases.
///
/// # Errors
/// As [`seeding::embedding_bases`].
pub fn bases(
    world: &World,
    corpus: &Corpus,
    settings: &TrainSettings,
    train_dir: &Path,
    seed: u64,
    seed_is_given: bool,
) -> Result<Vec<DetectorBasis>> {
    let made_from = made_from(corpus, settings, seed_is_given.then_some(seed));
    let detectors = corpus.detectors();
    let kept = match world.is_root() {
        true => kept_bases(train_dir, detectors, &made_from),
        false => None,
    };
    if world.broadcast_value(u8::from(kept.is_some()))? == 1 {
        return shared(world, kept, corpus, settings, detectors);
    }
    let mut bases = seeding::embedding_bases(world, corpus, settings, seed)?;
    bases
        .iter_mut()
        .for_each(|basis| basis.basis.made_from.clone_from(&made_from));
    Ok(bases)
}

/// All that a basis depends on, line by line.
fn made_from(corpus: &Corpus, settings: &TrainSettings, seed: Option<u64>) -> String {
    let (data, svd) = (&settings.data, &settings.model.embedding.svd);
    let lines = [
        ("version", env!("CARGO_PKG_VERSION").to_owned()),
        ("waveforms", file_identity(&data.waveform_dataset_path)),
        ("asds", file_identity(&settings.stages[0].asd_dataset_path)),
        ("domain", format!("{:?}", corpus.dataset.domain())),
        ("svd_size_update", format!("{:?}", data.svd_size_update)),
        ("detectors", data.detectors.join(" ")),
        ("ref_time", format!("{:?}", data.ref_time)),
        ("extrinsic_prior", format!("{:?}", data.extrinsic_prior)),
        ("svd.size", svd.size.to_string()),
        ("svd.num_training_samples", svd.num_training_samples.to_string()),
        ("svd.num_validation_samples", svd.num_validation_samples.to_string()),
        ("seed", seed.map_or("any".to_owned(), |seed| seed.to_string())),
    ];
    lines.map(|(name, value)| format!("{name}: {value}")).join("\n")
}

/// Path, size and time of the last change.
fn file_identity(path: &Path) -> String {
    let whole = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let metadata = fs::metadata(path);
    let (size, changed) = metadata.map_or((0, None), |metadata| (metadata.len(), metadata.modified().ok()));
    let changed = changed
        .and_then(|time| time.duration_since(UNIX_EPOCH).ok())
        .unwrap_or_default();
    format!("{}, {size} bytes, changed at {changed:?}", whole.display())
}

/// Those in the train dir; `None`, with a line about it, when there are none that fit.
fn kept_bases(train_dir: &Path, detectors: &[String], made_from: &str) -> Option<Vec<DetectorBasis>> {
    let mut bases = Vec::new();
    for detector in detectors {
        let path = path(train_dir, detector);
        if !path.exists() {
            return None;
        }
        match read(&path, made_from) {
            Ok(Ok(basis)) => bases.push(DetectorBasis {
                detector: detector.clone(),
                basis,
            }),
            Ok(Err(difference)) => {
                log::info!(
                    "{} was made from something else ({difference}) and is not used.",
                    path.display()
                );
                return None;
            }
            Err(error) => {
                log::warn!("The embedding's basis is made again: {error}");
                return None;
            }
        }
    }
    log::info!(
        "\nUsing the SVD in {} for initialization of embedding network.",
        train_dir.display()
    );
    Some(bases)
}

/// The basis in a file, or in what it differs from what is wanted.
fn read(path: &Path, made_from: &str) -> Result<Result<SvdBasis, String>, DataError> {
    let origin = SvdBasis::origin(path)?;
    if origin == made_from {
        return Ok(Ok(SvdBasis::read(path)?));
    }
    let differing = origin
        .lines()
        .zip(made_from.lines())
        .find(|(theirs, ours)| theirs != ours);
    Ok(Err(differing
        .map_or("it does not say what".to_owned(), |(theirs, ours)| {
            format!("\"{theirs}\", here \"{ours}\"")
        })))
}

/// Rank 0 tells the others the vectors, which is what the network needs.
fn shared(
    world: &World,
    kept: Option<Vec<DetectorBasis>>,
    corpus: &Corpus,
    settings: &TrainSettings,
    detectors: &[String],
) -> Result<Vec<DetectorBasis>> {
    let shape = [corpus.dataset.domain().num_bins(), settings.model.embedding.svd.size, 2].map(|size| size as i64);
    let mut kept = kept.map(Vec::into_iter);
    let mut bases = Vec::new();
    for detector in detectors {
        let own = kept.as_mut().and_then(Iterator::next);
        let pairs = match &own {
            Some(own) => own.basis.v.f_view_as_real()?.f_contiguous()?,
            None => Tensor::f_zeros(shape, (Kind::Double, Device::Cpu))?,
        };
        world.collectives().broadcast(&pairs, 0)?;
        bases.push(match own {
            Some(own) => own,
            None => DetectorBasis {
                detector: detector.clone(),
                basis: SvdBasis::of_vectors(pairs.f_view_as_complex()?),
            },
        });
    }
    Ok(bases)
}
