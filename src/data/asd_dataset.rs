//! Amplitude spectral densities of the detectors' noise, from Dingo's ASD files.

use super::hdf5_file::{listed, DataFile};
use super::DataError;
use crate::gw::domain::UniformFrequencyDomain;
use std::path::Path;

/// What ASDs are set to below f_min: whitened data vanishes there. Dingo's `HIGH_ASD_VALUE`.
const ASD_BELOW_F_MIN: f32 = 1.0;

/// ASDs (1/sqrt(Hz)) for some detectors, on the bins of the waveforms' domain, in single precision.
#[derive(Debug)]
pub struct AsdDataset {
    detectors: Vec<DetectorAsds>,
    bins: usize,
}

#[derive(Debug)]
struct DetectorAsds {
    name: String,
    /// `[num_asds, bins]`, row by row.
    values: Vec<f32>,
}

impl AsdDataset {
    /// Reads the ASDs of `detectors`, in that order, and fits them to `domain`: truncated above f_max, 1 below f_min.
    ///
    /// Errors when a detector is not in the file, when `domain` is not a part of the file's domain on the same grid, and
    /// when an ASD is not a positive, finite number between f_min and f_max, or NaN anywhere.
    pub fn open(path: &Path, detectors: &[String], domain: &UniformFrequencyDomain) -> Result<AsdDataset, DataError> {
        let file = DataFile::open(path)?;
        let file_domain = file.uniform_domain(&file.settings()?, "domain_dict")?;
        check_domain(&file, &file_domain, domain)?;
        let available = file.members("asds")?;
        let read = |name: &String| {
            if !available.contains(name) {
                let message = format!("has no ASDs of the detector '{name}' (it has: {})", listed(&available));
                return Err(file.error(message));
            }
            read_detector(&file, name, &file_domain, domain)
        };
        Ok(AsdDataset {
            detectors: detectors.iter().map(read).collect::<Result<_, _>>()?,
            bins: domain.num_bins(),
        })
    }

    /// The detectors' names, in the order they were asked for.
    pub fn detectors(&self) -> impl Iterator<Item = &str> {
        self.detectors.iter().map(|detector| detector.name.as_str())
    }

    /// How many ASDs there are for a detector; at least one.
    pub fn num_asds(&self, detector: usize) -> usize {
        self.detectors[detector].values.len() / self.bins
    }

    /// One ASD of a detector, `[bins]`, from 0 Hz to f_max.
    pub fn asd(&self, detector: usize, index: usize) -> &[f32] {
        &self.detectors[detector].values[index * self.bins..(index + 1) * self.bins]
    }
}

/// `domain` must be a part of the file's domain, on the same grid.
fn check_domain(
    file: &DataFile,
    file_domain: &UniformFrequencyDomain,
    domain: &UniformFrequencyDomain,
) -> Result<(), DataError> {
    if domain.delta_f != file_domain.delta_f {
        return Err(file.error(format!(
            "settings.domain_dict.delta_f: is {} Hz, but the waveforms have delta_f = {} Hz",
            file_domain.delta_f, domain.delta_f
        )));
    }
    match file_domain.update(Some(domain.f_min), Some(domain.f_max)) {
        Ok(_) => Ok(()),
        Err(error) => Err(file.error(format!("the ASDs do not cover the waveforms' domain: {error}"))),
    }
}

fn read_detector(
    file: &DataFile,
    name: &str,
    file_domain: &UniformFrequencyDomain,
    domain: &UniformFrequencyDomain,
) -> Result<DetectorAsds, DataError> {
    let key = format!("asds/{name}");
    let (values, [count, file_bins]) = file.real_matrix(&key)?;
    if file_bins != file_domain.num_bins() {
        return Err(file.error(format!(
            "{key}: has {file_bins} bins, but the file's domain (settings.domain_dict) has {}",
            file_domain.num_bins()
        )));
    }
    if count == 0 {
        return Err(file.error(format!("{key}: is empty; at least one ASD is needed")));
    }
    let used = domain.min_index()..domain.num_bins();
    let mut kept = Vec::with_capacity(count * domain.num_bins());
    for (index, asd) in values.chunks_exact(file_bins).enumerate() {
        // Outside the range in use zeros and infinities do no harm, and files have them at 0 Hz; NaN is always a fault.
        let valid = |(bin, asd): (usize, &f64)| match used.contains(&bin) {
            true => *asd > 0.0 && asd.is_finite(),
            false => !asd.is_nan(),
        };
        if let Some(bin) = asd.iter().enumerate().position(|entry| !valid(entry)) {
            let (value, frequency) = (asd[bin], file_domain.sample_frequency(bin));
            let message =
                format!("{key}: ASD {index} is {value} at {frequency} Hz (bin {bin}); it must be a positive number");
            return Err(file.error(message));
        }
        kept.extend(asd[..domain.num_bins()].iter().map(|&value| value as f32));
        let start = kept.len() - domain.num_bins();
        kept[start..start + domain.min_index()].fill(ASD_BELOW_F_MIN);
    }
    Ok(DetectorAsds {
        name: name.to_owned(),
        values: kept,
    })
}
