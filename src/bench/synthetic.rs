//! Data of the right shape, for a network without a dataset.

use super::{BenchError, BenchRequest};
use crate::data::{share_of, Batch, DetectorNetwork, WaveformDataset};
use crate::gw::domain::UniformFrequencyDomain;
use crate::settings::{Settings, TrainSettings};
use crate::spmd::World;
use anyhow::Result;
use tch::{Device, Kind, Tensor};

/// Completes the settings as data would, with the shape that the settings or the request give.
///
/// # Errors
/// A domain or detectors without sense.
pub fn complete(settings: &mut TrainSettings, request: &BenchRequest) -> Result<()> {
    let detectors = DetectorNetwork::new(&settings.data.detectors, settings.data.ref_time)?.len();
    let input_dims = match (request.bins, settings.model.embedding.input_dims) {
        (None, Some(given)) => given,
        (Some(bins), _) => [detectors, 3, bins],
        (None, None) => [detectors, 3, bins_of_domain(settings)?],
    };
    settings.set_context_parameters(settings.data.context_parameters.clone());
    settings.complete_model(settings.data.inference_parameters.len(), input_dims);
    Ok(())
}

/// What is assumed where neither settings nor a dataset tell: the domain of Dingo's examples.
const USUAL_DOMAIN: UniformFrequencyDomain = UniformFrequencyDomain {
    f_min: 20.0,
    f_max: 1024.0,
    delta_f: 0.125,
};

/// Bins from `f_min` to `f_max` of `data.domain_update`; what it leaves out is the dataset's where there is one.
fn bins_of_domain(settings: &TrainSettings) -> Result<usize> {
    let path = &settings.data.waveform_dataset_path;
    let update = settings.data.domain_update.as_ref();
    let [f_min, f_max, delta_f] = match update {
        Some(update) => [update.f_min, update.f_max, update.delta_f],
        None => [None; 3],
    };
    let known = match (f_min, f_max, delta_f) {
        (Some(f_min), Some(f_max), Some(delta_f)) => UniformFrequencyDomain { f_min, f_max, delta_f },
        _ if path.exists() => WaveformDataset::domain_of_file(path)?,
        _ => {
            log::info!(
                "The settings do not tell all of the frequency domain, and {} is not there: what is not told is that of 20 to \
                 1024 Hz in steps of 0.125 Hz (--bins sets the number of bins).",
                path.display()
            );
            USUAL_DOMAIN
        }
    };
    let [f_min, f_max] = [f_min.unwrap_or(known.f_min), f_max.unwrap_or(known.f_max)];
    let domain = UniformFrequencyDomain::new(f_min, f_max, delta_f.unwrap_or(known.delta_f));
    let domain = domain.map_err(|error| BenchError::request(format!("data.domain_update: {error}")))?;
    Ok(domain.num_bins() - domain.min_index())
}

/// This rank's share of a batch, where the network is: standard normal numbers, as standardized parameters and whitened strains
/// are. The same in every run.
///
/// # Errors
/// Not enough memory.
pub fn batch(world: &World, settings: &Settings, number: usize) -> Result<Batch> {
    let batch_size = settings.train.stages[0].batch_size;
    let share = share_of(batch_size, world.rank, world.size);
    let rows = share.len() as i64;
    let embedding = &settings.train.model.embedding;
    let [detectors, channels, bins] = embedding.input_dims.unwrap_or_default().map(|size| size as i64);
    tch::manual_seed((number * world.size + world.rank) as i64);
    // Made on the host, so that the numbers are the same on every device.
    let normal = |shape: &[i64]| Tensor::f_randn(shape, (Kind::Float, Device::Cpu))?.f_to_device(world.device());
    let parameters = settings.train.data.inference_parameters.len() as i64;
    let mut context = vec![normal(&[rows, detectors, channels, bins])?];
    if embedding.added_context {
        context.push(normal(&[rows, settings.train.data.context_parameters.len() as i64])?);
    }
    Ok(Batch {
        theta: normal(&[rows, parameters])?,
        context,
        global_count: batch_size,
        first_sample: share.start,
    })
}
