//! Mean and standard deviation of the parameters, as Dingo's `get_standardization_dict` finds them.

use indexmap::IndexMap;

use super::draws::extrinsic;
use super::random::Purpose;
use super::transforms::{DetectorNetwork, ExtrinsicPrior, Source};
use super::{DataError, WaveformDataset};
use crate::gw::prior::Moments;
use crate::settings::Standardization;

/// Samples from which moments of arrival times are estimated, as many as in Dingo (or all, where there are fewer).
const SAMPLES: usize = 100_000;

/// Standardization of `data.inference_parameters` and `data.context_parameters`.
///
/// Intrinsic parameters: over the whole dataset, with n - 1 in the variance. Extrinsic ones: of their priors. Arrival
/// times: over draws (their seed is fixed, so that every run on a dataset is standardized alike), with n in the variance.
///
/// Errors name the key for a parameter that exists nowhere or whose values are all the same, and for an extrinsic
/// parameter that varies in the dataset as well.
pub fn standardization(
    dataset: &WaveformDataset,
    prior: &ExtrinsicPrior,
    network: &DetectorNetwork,
    inference_parameters: &[String],
    context_parameters: &[String],
) -> Result<Standardization, DataError> {
    check_fixed_in_dataset(dataset, prior)?;
    let inference = inference_parameters
        .iter()
        .map(|name| (name, "data.inference_parameters"));
    let context = context_parameters.iter().map(|name| (name, "data.context_parameters"));
    let mut result = Standardization {
        mean: IndexMap::new(),
        std: IndexMap::new(),
    };
    for (name, key) in inference.chain(context) {
        let moments = match Source::of(name, key, dataset, prior, network)? {
            Source::Intrinsic(name) => dataset.parameter(&name).map(|values| sample_moments(values, 1)),
            Source::Extrinsic(name) => prior.moments(&name),
            Source::ArrivalTime(detector) => Some(arrival_time_moments(dataset, prior, network, detector)),
        };
        let Moments { mean, std } = moments.unwrap_or(Moments {
            mean: f64::NAN,
            std: f64::NAN,
        });
        if !mean.is_finite() || !std.is_finite() || std <= 0.0 {
            let message = format!(
                "{name} has zero spread (mean {mean}, standard deviation {std}) and cannot be standardized; remove it, or \
                 use a dataset or prior in which it varies"
            );
            return Err(DataError::Setting {
                key: key.to_string(),
                message,
            });
        }
        result.mean.insert(name.clone(), mean);
        result.std.insert(name.clone(), std);
    }
    Ok(result)
}

/// A parameter that is drawn in training must be a fixed value in the dataset, if it is there.
fn check_fixed_in_dataset(dataset: &WaveformDataset, prior: &ExtrinsicPrior) -> Result<(), DataError> {
    for name in prior.names() {
        let Some(values) = dataset.parameter(name) else {
            continue;
        };
        let Moments { mean, std } = sample_moments(values, 0);
        if std != 0.0 {
            let message = format!(
                "{name} is drawn in training, but varies in the waveform dataset too (mean {mean}, standard deviation \
                 {std}); use a dataset in which it is fixed"
            );
            return Err(DataError::Setting {
                key: format!("data.extrinsic_prior.{name}"),
                message,
            });
        }
    }
    Ok(())
}

/// Moments of a sample; the variance divides by n - `ddof`. Zero spread is exactly zero.
fn sample_moments(values: &[f64], ddof: usize) -> Moments {
    let n = values.len() as f64;
    if values.iter().all(|&value| value == values[0]) {
        return Moments {
            mean: values.first().copied().unwrap_or(f64::NAN),
            std: 0.0,
        };
    }
    let mean = values.iter().sum::<f64>() / n;
    let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (n - ddof as f64);
    Moments {
        mean,
        std: variance.sqrt(),
    }
}

fn arrival_time_moments(
    dataset: &WaveformDataset,
    prior: &ExtrinsicPrior,
    network: &DetectorNetwork,
    detector: usize,
) -> Moments {
    let indices: Vec<usize> = (0..dataset.len().min(SAMPLES)).collect();
    let draws = extrinsic(prior, 0, Purpose::Standardization, 0, &indices);
    let (ra, dec, time) = (&draws["ra"], &draws["dec"], &draws["geocent_time"]);
    let times: Vec<f64> = indices
        .iter()
        .map(|&i| network.arrival_time(detector, ra[i], dec[i], time[i]))
        .collect();
    sample_moments(&times, 0)
}
