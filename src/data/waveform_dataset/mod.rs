//! Waveform polarizations and their intrinsic parameters, from Dingo's HDF5 files.

mod rows;

use super::decompression::{Decompression, Scratch};
use super::hdf5_file::{inline, listed, DataFile, Table};
use super::DataError;
use crate::gw::domain::UniformFrequencyDomain;
use crate::gw::noise_curve::NoiseCurve;
use crate::settings::{DataSettings, Value};
use crate::torch_ext::strain::Waveforms;
use num_complex::Complex64;
use rows::{Access, WaveformRows};
use std::ops::Range;
use std::path::Path;
use tch::Tensor;

/// A dataset of waveforms. Safe to read from many threads at once.
pub struct WaveformDataset {
    settings: Value,
    domain: UniformFrequencyDomain,
    parameters: Table,
    plus: WaveformRows,
    cross: WaveformRows,
    decompression: Decompression,
}

/// Plus and cross polarization of some samples, each `[samples, bins]`, complex64, from 0 Hz to f_max, zero below f_min.
#[derive(Debug)]
pub struct Polarizations {
    pub plus: Tensor,
    pub cross: Tensor,
}

impl WaveformDataset {
    /// Opens a dataset, narrowed to `data.domain_update` and `data.svd_size_update` of the settings.
    ///
    /// With `leave_waveforms_on_disk` the polarizations are mapped from the file, one copy in memory per node however
    /// many ranks there are; else every rank holds them as complex64. (Datasets that are chunked or compressed by HDF5
    /// are always read into memory.)
    ///
    /// Waveforms must be finite numbers: all are checked when they are read into memory or the file is below 1 GiB, else a
    /// thousand rows now and every batch when it is read.
    pub fn open(path: &Path, settings: &DataSettings, leave_waveforms_on_disk: bool) -> Result<Self, DataError> {
        match leave_waveforms_on_disk {
            true => Self::open_with(path, settings, Access::Mapped),
            false => Self::open_with(path, settings, Access::Memory),
        }
    }

    /// Finds the faults that [`WaveformDataset::open`] finds, without the hour that reading all waveforms may take: of large
    /// datasets some rows are looked at. The polarizations of a dataset that is only surveyed cannot be had.
    pub fn survey(path: &Path, settings: &DataSettings) -> Result<Self, DataError> {
        Self::open_with(path, settings, Access::Survey)
    }

    fn open_with(path: &Path, settings: &DataSettings, access: Access) -> Result<Self, DataError> {
        let file = DataFile::open(path)?;
        let file_settings = file.settings()?;
        let file_domain = file.uniform_domain(&file_settings, "domain")?;
        let domain = update_domain(&file_domain, settings)?;
        let compression = Compression::from_settings(&file, &file_settings)?;

        let parameters = single_precision(file.table("parameters")?);
        let count = parameters.columns.first().map_or(0, Vec::len);
        if count == 0 {
            return Err(file.error("parameters: is empty; at least one sample and one parameter are needed"));
        }

        let basis = match compression.svd {
            true => Some(read_basis(&file, &file_domain, &domain, settings.svd_size_update)?),
            false => None,
        };
        let whitening = compression
            .whitening
            .as_deref()
            .map(|name| whitening_asd(&file, name, &domain))
            .transpose()?;
        let (stored_width, width) = match &basis {
            Some(basis) => (basis.stored_size, basis.size),
            None => (file_domain.num_bins(), domain.num_bins()),
        };
        let open_rows = |key: &str| {
            let dataset = file.dataset(key)?;
            let shape = file.matrix_shape(key, &dataset)?;
            if shape != [count, stored_width] {
                let columns = if basis.is_some() {
                    "size of svd/V"
                } else {
                    "bins of the domain"
                };
                return Err(file.error(format!(
                    "{key}: has shape {shape:?}, but {:?} is needed (samples in parameters, {columns})",
                    [count, stored_width]
                )));
            }
            WaveformRows::open(&file, key, &dataset, width, access)
        };
        Ok(Self {
            plus: open_rows("polarizations/h_plus")?,
            cross: open_rows("polarizations/h_cross")?,
            decompression: Decompression::new(&domain, basis.as_ref().map(|b| &b.v[..]), whitening.as_deref()),
            settings: file_settings,
            domain,
            parameters,
        })
    }

    /// The domain that a file tells of itself, without a look at its waveforms.
    pub fn domain_of_file(path: &Path) -> Result<UniformFrequencyDomain, DataError> {
        let file = DataFile::open(path)?;
        file.uniform_domain(&file.settings()?, "domain")
    }

    /// Number of samples; at least one.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.plus.count()
    }

    /// Bytes that the polarizations take in memory, on each rank, when they are not left on disk; and in the file.
    pub fn waveform_bytes(&self) -> [u64; 2] {
        let in_memory = 2 * self.len() as u64 * self.plus.width() as u64 * 8;
        [in_memory, self.plus.stored_bytes() + self.cross.stored_bytes()]
    }

    /// Whether the polarizations can be left on disk, shared by the ranks of a node.
    pub fn can_be_mapped(&self) -> bool {
        self.plus.can_be_mapped() && self.cross.can_be_mapped()
    }

    /// The domain after `domain_update`.
    pub fn domain(&self) -> &UniformFrequencyDomain {
        &self.domain
    }

    /// Names of the intrinsic parameters, in the file's order.
    pub fn parameter_names(&self) -> &[String] {
        &self.parameters.names
    }

    /// An intrinsic parameter of all samples; values are rounded to single precision, in which Dingo keeps them.
    pub fn parameter(&self, name: &str) -> Option<&[f64]> {
        let column = self.parameters.names.iter().position(|n| n == name)?;
        Some(&self.parameters.columns[column])
    }

    /// The file's settings as they stand there: what Dingo puts into `metadata.dataset_settings` of a checkpoint.
    pub fn settings(&self) -> &Value {
        &self.settings
    }

    /// The decompressed polarizations of some samples, in the order given; both tensors share one storage.
    ///
    /// Errors when a sample is not there or holds a number that is not finite.
    pub fn polarizations(&self, indices: &[usize]) -> Result<Polarizations, DataError> {
        let both = self.decompression.whole(&self.stored(indices)?.rows)?;
        let count = indices.len() as i64;
        Ok(Polarizations {
            plus: both.f_narrow(0, 0, count)?,
            cross: both.f_narrow(0, count, count)?,
        })
    }

    /// The stored rows of some samples, which are decompressed by [`WaveformDataset::stretch`]; errors as above.
    pub fn stored(&self, indices: &[usize]) -> Result<StoredWaveforms, DataError> {
        let count = indices.len();
        let width = 2 * self.plus.width();
        let mut stored = vec![0f32; 2 * count * width];
        let (plus, cross) = stored.split_at_mut(count * width);
        self.plus.copy_rows(indices.iter().copied(), plus)?;
        self.cross.copy_rows(indices.iter().copied(), cross)?;
        Ok(StoredWaveforms {
            rows: self.decompression.prepare(stored, 2 * count)?,
        })
    }

    /// Whether stored rows are much smaller than waveforms, so that a whole batch of them is best read at once.
    pub fn is_compressed(&self) -> bool {
        self.decompression.is_expanding()
    }

    /// Operations that the decompression of a sample takes as a product of complex matrices; 0 where there is none.
    pub fn decompression_flops(&self) -> f64 {
        const PER_ELEMENT: usize = 8;
        let bins = self.domain.num_bins() - self.domain.min_index();
        match self.is_compressed() {
            true => (PER_ELEMENT * 2 * self.plus.width() * bins) as f64,
            false => 0.0,
        }
    }

    /// Bytes of a sample's polarizations in the file or in memory.
    pub fn bytes_per_sample(&self) -> usize {
        self.plus.row_bytes() + self.cross.row_bytes()
    }

    /// The bins from f_min to f_max in the parts that are best decompressed at a time.
    pub fn stretches(&self) -> Vec<Range<usize>> {
        self.decompression.stretches()
    }

    /// The polarizations at the bins of stretch `number`. They may lie in `scratch`, which the next call overwrites.
    pub fn stretch(
        &self,
        stored: &StoredWaveforms,
        number: usize,
        scratch: &mut Scratch,
    ) -> Result<Waveforms, DataError> {
        self.decompression.stretch(&stored.rows, number, scratch)
    }
}

/// Waveforms of some samples as the dataset holds them, one polarization below the other.
#[derive(Debug)]
pub struct StoredWaveforms {
    rows: Tensor,
}

/// How the file's waveforms are compressed.
#[derive(Debug, Default)]
struct Compression {
    svd: bool,
    /// File name of the noise curve the waveforms were whitened by.
    whitening: Option<String>,
}

impl Compression {
    fn from_settings(file: &DataFile, settings: &Value) -> Result<Self, DataError> {
        let mut compression = Self::default();
        let steps = match settings.get("compression") {
            None | Some(Value::Null) => return Ok(compression),
            // Dingo's example settings have `None` in YAML, which is a string there.
            Some(Value::String(none)) if none == "None" => return Ok(compression),
            Some(Value::Mapping(steps)) => steps,
            Some(other) => {
                let message = format!(
                    "settings.compression: is {}, which is neither None nor a dictionary",
                    inline(other)
                );
                return Err(file.error(message));
            }
        };
        for (step, value) in steps {
            match (step.as_str(), value) {
                (Some("svd"), _) => compression.svd = true,
                (Some("whitening"), Value::String(name)) => compression.whitening = Some(name.clone()),
                _ => {
                    let message = format!(
                        "settings.compression.{}: {} is not supported yet (allowed: svd, whitening with a noise curve's name)",
                        inline(step).trim_matches('"'),
                        inline(value)
                    );
                    return Err(file.error(message));
                }
            }
        }
        Ok(compression)
    }
}

/// The SVD basis on the updated domain.
struct Basis {
    /// V `[bins, size]`, row by row.
    v: Vec<Complex64>,
    size: usize,
    /// The size before `svd_size_update`.
    stored_size: usize,
}

/// Reads V and narrows it: rows to the bins up to f_max, columns to `svd_size_update`.
fn read_basis(
    file: &DataFile,
    file_domain: &UniformFrequencyDomain,
    domain: &UniformFrequencyDomain,
    size_update: Option<usize>,
) -> Result<Basis, DataError> {
    let (stored, [rows, stored_size]) = file.complex_matrix("svd/V")?;
    if rows != file_domain.num_bins() || stored_size == 0 {
        return Err(file.error(format!(
            "svd/V: has shape [{rows}, {stored_size}], but the file's domain (settings.domain) has {} bins",
            file_domain.num_bins()
        )));
    }
    if stored.iter().any(|v| !(v.re.is_finite() && v.im.is_finite())) {
        return Err(file.error("svd/V: holds NaN or infinite numbers"));
    }
    let size = size_update.unwrap_or(stored_size);
    if size == 0 || size > stored_size {
        return Err(DataError::Setting {
            key: "data.svd_size_update".into(),
            message: format!(
                "is {size}, but the basis in {} allows 1 to {stored_size}",
                file.path().display()
            ),
        });
    }
    let v = stored
        .chunks_exact(stored_size)
        .take(domain.num_bins())
        .flat_map(|row| &row[..size])
        .copied()
        .collect();
    Ok(Basis { v, size, stored_size })
}

/// The domain narrowed by `data.domain_update`, which may repeat delta_f but not change it.
fn update_domain(
    file_domain: &UniformFrequencyDomain,
    settings: &DataSettings,
) -> Result<UniformFrequencyDomain, DataError> {
    let Some(update) = &settings.domain_update else {
        return Ok(file_domain.clone());
    };
    let refuse = |key: &str, message: String| DataError::Setting {
        key: key.into(),
        message,
    };
    match update.delta_f {
        Some(delta_f) if delta_f != file_domain.delta_f => Err(refuse(
            "data.domain_update.delta_f",
            format!(
                "is {delta_f} Hz, but the dataset has {} Hz, which cannot be changed",
                file_domain.delta_f
            ),
        )),
        _ => file_domain
            .update(update.f_min, update.f_max)
            .map_err(|error| refuse("data.domain_update", error.to_string())),
    }
}

/// The ASD that the waveforms were divided by before compression, on the domain's bins.
fn whitening_asd(file: &DataFile, name: &str, domain: &UniformFrequencyDomain) -> Result<Vec<f32>, DataError> {
    let fail = |message: String| file.error(format!("settings.compression.whitening: {message}"));
    let curve = NoiseCurve::by_file_name(name).ok_or_else(|| {
        fail(format!(
            "'{name}' is not a noise curve of bilby (known: {})",
            listed(&NoiseCurve::known_names())
        ))
    })?;
    let asd = curve
        .on_domain(domain)
        .map_err(|error| fail(format!("'{name}': {error}")))?;
    Ok(asd.into_iter().map(|value| value as f32).collect())
}

/// Dingo keeps the parameters in single precision; what is computed from them starts from the rounded values.
fn single_precision(mut parameters: Table) -> Table {
    for value in parameters.columns.iter_mut().flatten() {
        *value = f64::from(*value as f32);
    }
    parameters
}
