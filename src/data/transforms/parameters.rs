//! Parameters that the network infers or is given: where their values come from, and their standardization.

use tch::Tensor;

use super::{DetectorNetwork, ExtrinsicPrior};
use crate::data::{DataError, Draws, WaveformDataset};
use crate::settings::Standardization;

/// Where a parameter's values come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// Drawn with the sample.
    Extrinsic(String),
    /// The arrival time at a detector, given by its number.
    ArrivalTime(usize),
    /// A column of the waveform dataset.
    Intrinsic(String),
}

impl Source {
    /// A parameter that is both drawn and in the dataset takes the drawn value, as in Dingo. `key` is the setting that
    /// asks for it, for the error when it exists nowhere.
    pub fn of(
        name: &str,
        key: &str,
        dataset: &WaveformDataset,
        prior: &ExtrinsicPrior,
        network: &DetectorNetwork,
    ) -> Result<Source, DataError> {
        if prior.names().any(|known| known == name) {
            return Ok(Source::Extrinsic(name.to_string()));
        }
        if let Some(detector) = network.of_time_parameter(name) {
            return Ok(Source::ArrivalTime(detector));
        }
        if dataset.parameter(name).is_some() {
            return Ok(Source::Intrinsic(name.to_string()));
        }
        let intrinsic = dataset.parameter_names().iter().map(String::as_str);
        let known: Vec<&str> = intrinsic.chain(prior.names()).collect();
        let times: Vec<String> = network.names().map(|detector| format!("{detector}_time")).collect();
        let message = format!(
            "there is no parameter {name:?}; available are {}, {}",
            known.join(", "),
            times.join(", ")
        );
        Err(DataError::Setting {
            key: key.to_string(),
            message,
        })
    }
}

/// Parameters side by side, standardized: a table `[samples, parameters]`.
#[derive(Debug, Clone)]
pub struct ParameterTable {
    columns: Vec<Column>,
}

#[derive(Debug, Clone)]
struct Column {
    source: Source,
    mean: f64,
    std: f64,
}

impl ParameterTable {
    /// Errors name `data.standardization` when it lacks one of `names` or has no positive standard deviation for it.
    pub fn new(
        names: &[String],
        sources: Vec<Source>,
        standardization: &Standardization,
    ) -> Result<ParameterTable, DataError> {
        let error = |what: &str, message: String| DataError::Setting {
            key: format!("data.standardization.{what}"),
            message,
        };
        let column = |(name, source): (&String, Source)| {
            let missing = |what| error(what, format!("there is no value for {name}"));
            let mean = *standardization.mean.get(name).ok_or_else(|| missing("mean"))?;
            let std = *standardization.std.get(name).ok_or_else(|| missing("std"))?;
            if !mean.is_finite() || !std.is_finite() || std <= 0.0 {
                return Err(error(
                    "std",
                    format!("{name} has mean {mean} and standard deviation {std}; it must be positive"),
                ));
            }
            Ok(Column { source, mean, std })
        };
        Ok(ParameterTable {
            columns: names.iter().zip(sources).map(column).collect::<Result<_, _>>()?,
        })
    }

    /// `(value - mean) / std` of these samples, `[samples, parameters]`, float32. `arrival_times` is
    /// `[samples][detectors]` in one row, in seconds.
    pub fn standardized(
        &self,
        dataset: &WaveformDataset,
        indices: &[usize],
        draws: &Draws,
        arrival_times: &[f64],
    ) -> Result<Tensor, DataError> {
        let (samples, width) = (indices.len(), self.columns.len());
        let detectors = arrival_times.len().checked_div(samples).unwrap_or(0);
        let mut table = vec![0f32; samples * width];
        for (c, column) in self.columns.iter().enumerate() {
            let mut fill = |value: &dyn Fn(usize) -> f64| {
                for sample in 0..samples {
                    table[sample * width + c] = ((value(sample) - column.mean) / column.std) as f32;
                }
            };
            let missing = |name: &str| DataError::Compute(format!("there are no values of {name}"));
            match &column.source {
                Source::Extrinsic(name) => {
                    let values = draws.extrinsic.get(name).ok_or_else(|| missing(name))?;
                    fill(&|sample| values[sample]);
                }
                Source::ArrivalTime(detector) => fill(&|sample| arrival_times[sample * detectors + detector]),
                Source::Intrinsic(name) => {
                    let values = dataset.parameter(name).ok_or_else(|| missing(name))?;
                    fill(&|sample| values[indices[sample]]);
                }
            }
        }
        Ok(Tensor::f_from_slice(&table)?.f_view([samples as i64, width as i64])?)
    }
}
