//! A dataset in Dingo's format to measure with, for those who have none: waveforms of inspirals, SVD-compressed as Dingo's
//! are, and a noise spectrum for two detectors. Good enough for speed, not for science.

mod inspiral;

use super::BenchError;
use crate::data::{DataError, Share, SingleRank, SvdBasis};
use crate::gw::domain::UniformFrequencyDomain;
use crate::gw::noise_curve::NoiseCurve;
use crate::gw::prior::Prior;
use crate::nn::SplitMix64;
use anyhow::{anyhow, Context, Result};
use hdf5_metno::types::VarLenUnicode;
use hdf5_metno::{Dataset, File, Group, H5Type};
use inspiral::{Inspiral, Powers};
use num_complex::Complex32;
use std::path::Path;
use tch::{Device, Kind, Tensor};

/// What the dataset is like.
#[derive(Debug, Clone, PartialEq)]
pub struct DatasetRequest {
    pub samples: usize,
    /// Coefficients that a waveform is compressed to.
    pub size: usize,
    /// Hz.
    pub f_max: f64,
    /// Hz.
    pub delta_f: f64,
}

/// Of `settings/bench.yaml`.
impl Default for DatasetRequest {
    fn default() -> Self {
        DatasetRequest {
            samples: 8000,
            size: 200,
            f_max: 1024.0,
            delta_f: 0.125,
        }
    }
}

pub const WAVEFORMS: &str = "waveform_dataset.hdf5";
pub const ASDS: &str = "asds_fiducial.hdf5";

const F_MIN: f64 = 20.0;
const SEED: u64 = 1;
/// Waveforms that the basis is built on, for each of its elements.
const TRAINING_PER_ELEMENT: usize = 10;
/// Waveforms in memory at a time.
const CHUNK: usize = 500;
const DETECTORS: [&str; 2] = ["H1", "L1"];
const GPS_TIME: f64 = 1126259462.391;
/// Waveforms are divided by this curve of bilby's before compression.
const WHITENING: &str = "aLIGO_ZERO_DET_high_P_asd.txt";
const NOISE: &str = "aLIGO_O4_high_asd.txt";
const VERSION: &str = "dingo=0.10.3";

/// The intrinsic priors, as the file's settings tell them; fixed values are the reference that data are scaled from.
const PRIORS: [(&str, &str); 6] = [
    (
        "chirp_mass",
        "bilby.gw.prior.UniformInComponentsChirpMass(minimum=15.0, maximum=150.0, name='chirp_mass')",
    ),
    (
        "mass_ratio",
        "bilby.gw.prior.UniformInComponentsMassRatio(minimum=0.125, maximum=1.0, name='mass_ratio')",
    ),
    (
        "phase",
        "bilby.core.prior.Uniform(minimum=0.0, maximum=6.283185307179586, name='phase')",
    ),
    (
        "chi_1",
        "bilby.gw.prior.AlignedSpin(name='chi_1', a_prior=Uniform(minimum=0, maximum=0.9))",
    ),
    (
        "chi_2",
        "bilby.gw.prior.AlignedSpin(name='chi_2', a_prior=Uniform(minimum=0, maximum=0.9))",
    ),
    (
        "theta_jn",
        "bilby.core.prior.Sine(minimum=0.0, maximum=3.141592653589793, name='theta_jn')",
    ),
];
/// Mpc.
const DISTANCE: f64 = 100.0;

/// A row of the file's table of parameters.
#[derive(Debug, Clone, Copy, H5Type)]
#[repr(C)]
struct Parameters {
    chirp_mass: f64,
    mass_ratio: f64,
    phase: f64,
    chi_1: f64,
    chi_2: f64,
    theta_jn: f64,
    luminosity_distance: f64,
    geocent_time: f64,
}

/// Writes both files into `folder`, which is made where it is not there. The same request gives the same files.
///
/// # Errors
/// A domain without sense, fewer bins than coefficients, files that cannot be written.
pub fn write(folder: &Path, request: &DatasetRequest) -> Result<()> {
    let domain = UniformFrequencyDomain::new(F_MIN, request.f_max, request.delta_f)
        .map_err(|error| BenchError::request(error.to_string()))?;
    if request.samples == 0 {
        return Err(BenchError::request("a dataset has at least one sample").into());
    }
    std::fs::create_dir_all(folder).map_err(BenchError::io("create", folder))?;
    let path = folder.join(ASDS);
    write_asds(&path, &domain).with_context(|| format!("cannot write {}", path.display()))?;
    log::info!("Written: {}", path.display());
    let path = folder.join(WAVEFORMS);
    write_waveforms(&path, &domain, request).with_context(|| format!("cannot write {}", path.display()))?;
    log::info!("Written: {}", path.display());
    Ok(())
}

fn write_asds(path: &Path, domain: &UniformFrequencyDomain) -> Result<()> {
    let curve = curve(NOISE)?.on_domain(domain)?;
    let file = File::create(path)?;
    let (asds, times) = (file.create_group("asds")?, file.create_group("gps_times")?);
    for detector in DETECTORS {
        let asd = asds.new_dataset::<f64>().shape([1, curve.len()]).create(detector)?;
        asd.write_raw(&curve)?;
        times
            .new_dataset::<f64>()
            .shape([1])
            .create(detector)?
            .write_raw(&[GPS_TIME])?;
    }
    let settings = format!("{{'domain_dict': {}}}", domain_settings(0.0, domain));
    finish(&file, "asd_dataset", &settings)
}

fn curve(name: &str) -> Result<NoiseCurve> {
    NoiseCurve::by_file_name(name).ok_or_else(|| anyhow!("the noise curve {name} is not there"))
}

fn domain_settings(f_min: f64, domain: &UniformFrequencyDomain) -> String {
    format!(
        "{{'type': 'UniformFrequencyDomain', 'f_min': {f_min:?}, 'f_max': {:?}, 'delta_f': {:?}}}",
        domain.f_max, domain.delta_f
    )
}

/// Attributes that all of Dingo's files have.
fn finish(file: &File, kind: &str, settings: &str) -> Result<()> {
    let text = |text: &str| -> Result<VarLenUnicode> { Ok(text.parse()?) };
    let attribute = |name: &str, value: &str| -> Result<()> {
        Ok(file
            .new_attr::<VarLenUnicode>()
            .create(name)?
            .write_scalar(&text(value)?)?)
    };
    attribute("dataset_type", kind)?;
    attribute("settings", settings)?;
    file.new_dataset::<VarLenUnicode>()
        .create("version")?
        .write_scalar(&text(VERSION)?)?;
    Ok(())
}

fn write_waveforms(path: &Path, domain: &UniformFrequencyDomain, request: &DatasetRequest) -> Result<()> {
    let maker = Maker::new(domain)?;
    let training = maker.parameters("training", TRAINING_PER_ELEMENT * request.size)?;
    log::info!(
        "Building a basis of {} elements from {} waveforms.",
        request.size,
        training.len()
    );
    let waveforms = maker.whitened(&training)?;
    let share = Share {
        waveforms: &waveforms,
        first: 0,
        total: training.len(),
    };
    let basis = SvdBasis::compute(share, domain.min_index(), request.size, SEED as u32, &SingleRank);
    let basis = basis.map_err(|error| match error.is::<DataError>() {
        true => BenchError::request(format!("{} coefficients: {error}", request.size)).into(),
        false => error,
    })?;
    drop(waveforms);
    let v = basis.v.f_to_kind(Kind::ComplexFloat)?;

    let file = File::create(path)?;
    let svd = file.create_group("svd")?;
    let shape = [domain.num_bins(), request.size];
    svd.new_dataset::<Complex32>()
        .shape(shape)
        .create("V")?
        .write_raw(&complex(&v)?)?;
    svd.new_dataset::<f64>()
        .shape([request.size])
        .create("s")?
        .write_raw(&basis.s)?;
    let parameters = maker.parameters("samples", request.samples)?;
    let table = file
        .new_dataset::<Parameters>()
        .shape([request.samples])
        .create("parameters")?;
    table.write_raw(&parameters)?;
    let polarizations = file.create_group("polarizations")?;
    maker.write_polarizations(&polarizations, &parameters, &v)?;
    finish(&file, "waveform_dataset", &waveform_settings(domain, request))
}

fn waveform_settings(domain: &UniformFrequencyDomain, request: &DatasetRequest) -> String {
    let priors: Vec<String> = PRIORS
        .iter()
        .map(|(name, prior)| format!("'{name}': \"{prior}\""))
        .collect();
    format!(
        "{{'domain': {}, 'waveform_generator': {{'approximant': 'inspiral', 'f_ref': {F_MIN:?}}}, 'intrinsic_prior': {{{}, \
         'luminosity_distance': {DISTANCE:?}, 'geocent_time': 0.0}}, 'num_samples': {}, 'compression': {{'svd': {{'size': {}, \
         'num_training_samples': {}, 'num_validation_samples': 0}}, 'whitening': '{WHITENING}'}}}}",
        domain_settings(F_MIN, domain),
        priors.join(", "),
        request.samples,
        request.size,
        TRAINING_PER_ELEMENT * request.size,
    )
}

/// Makes waveforms on a domain.
struct Maker {
    powers: Powers,
    /// 1 / ASD of each bin, 0 below f_min.
    whitening: Vec<f64>,
}

impl Maker {
    fn new(domain: &UniformFrequencyDomain) -> Result<Maker> {
        let asd = curve(WHITENING)?.on_domain(domain)?;
        let whitening = |(bin, asd): (usize, f64)| if bin < domain.min_index() { 0.0 } else { asd.recip() };
        Ok(Maker {
            powers: Powers::on(domain),
            whitening: asd.into_iter().enumerate().map(whitening).collect(),
        })
    }

    /// Draws; each parameter has a stream of its own. `purpose` tells the streams of one dataset apart.
    fn parameters(&self, purpose: &str, count: usize) -> Result<Vec<Parameters>> {
        let draw = |(name, prior): (&str, &str)| -> Result<Vec<f64>> {
            let prior = Prior::parse(name, prior)?;
            let mut generator = SplitMix64::for_tensor(SEED, &format!("{purpose}.{name}"));
            Ok((0..count).map(|_| prior.rescale(generator.next_unit())).collect())
        };
        let columns: Vec<Vec<f64>> = PRIORS.into_iter().map(draw).collect::<Result<_>>()?;
        let row = |row: usize| Parameters {
            chirp_mass: columns[0][row],
            mass_ratio: columns[1][row],
            phase: columns[2][row],
            chi_1: columns[3][row],
            chi_2: columns[4][row],
            theta_jn: columns[5][row],
            luminosity_distance: DISTANCE,
            geocent_time: 0.0,
        };
        Ok((0..count).map(row).collect())
    }

    /// Whitened waveforms, seen face on, `[samples, bins]`, complex64.
    fn whitened(&self, parameters: &[Parameters]) -> Result<Tensor> {
        let bins = self.whitening.len();
        let mut pairs = vec![0f32; parameters.len() * bins * 2];
        for (row, parameters) in pairs.chunks_exact_mut(2 * bins).zip(parameters) {
            let inspiral = Inspiral {
                chirp_mass: parameters.chirp_mass,
                mass_ratio: parameters.mass_ratio,
                chi_1: parameters.chi_1,
                chi_2: parameters.chi_2,
                phase: parameters.phase,
                distance: parameters.luminosity_distance,
            };
            let strain = inspiral.strain(&self.powers);
            for ((pair, h), &whitening) in row.chunks_exact_mut(2).zip(strain).zip(&self.whitening) {
                if whitening > 0.0 {
                    pair.copy_from_slice(&[(h.re * whitening) as f32, (h.im * whitening) as f32]);
                }
            }
        }
        let shape = [parameters.len() as i64, bins as i64, 2];
        Ok(Tensor::f_from_slice(&pairs)?.f_view(shape)?.f_view_as_complex()?)
    }

    /// The coefficients of both polarizations, chunk by chunk.
    fn write_polarizations(&self, group: &Group, parameters: &[Parameters], v: &Tensor) -> Result<()> {
        let size = v.size()[1] as usize;
        let shape = [parameters.len(), size];
        let create = |name: &str| group.new_dataset::<Complex32>().shape(shape).create(name);
        let (plus, cross) = (create("h_plus")?, create("h_cross")?);
        for (chunk, parameters) in parameters.chunks(CHUNK).enumerate() {
            let coefficients = complex(&self.whitened(parameters)?.f_matmul(v)?)?;
            let rows = coefficients.chunks_exact(size).zip(parameters);
            let seen = |part: fn(f64) -> Complex32| -> Vec<Complex32> {
                let row = |(row, parameters): (&[Complex32], &Parameters)| {
                    let factor = part(parameters.theta_jn.cos());
                    row.iter().map(|coefficient| coefficient * factor).collect::<Vec<_>>()
                };
                rows.clone().flat_map(row).collect()
            };
            let first = chunk * CHUNK;
            let plus_part = seen(|cosine| Complex32::new((0.5 * (1.0 + cosine * cosine)) as f32, 0.0));
            let cross_part = seen(|cosine| Complex32::new(0.0, -cosine as f32));
            write_rows(&plus, first, &plus_part, size)?;
            write_rows(&cross, first, &cross_part, size)?;
        }
        Ok(())
    }
}

fn write_rows(dataset: &Dataset, first: usize, values: &[Complex32], width: usize) -> Result<()> {
    for (row, values) in values.chunks_exact(width).enumerate() {
        dataset.write_slice(values, (first + row, ..))?;
    }
    Ok(())
}

/// The numbers of a complex64 tensor, row by row.
fn complex(tensor: &Tensor) -> Result<Vec<Complex32>> {
    let pairs = tensor.f_view_as_real()?.f_contiguous()?.f_to_device(Device::Cpu)?;
    let pairs: Vec<f32> = Vec::try_from(&pairs.f_flatten(0, -1)?)?;
    Ok(pairs
        .chunks_exact(2)
        .map(|pair| Complex32::new(pair[0], pair[1]))
        .collect())
}

#[cfg(test)]
mod tests;
