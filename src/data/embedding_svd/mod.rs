//! The reduced basis that the first layer of the embedding network starts from.
//!
//! Dingo's procedure (`build_svd_for_embedding_network`): an SVD of clean, whitened waveforms for each detector, tested
//! on further waveforms, and written to `svd_H1.hdf5` and so on. Dingo makes it in one process. Here all ranks make it
//! together, each with its share of the waveforms; `train::seeding` makes these.

mod distributed;
mod mismatch;

pub(super) use mismatch::summary as mismatch_statistics;

use super::hdf5_file::{innermost, write_table, Table};
use super::DataError;
use crate::spmd::World;
use distributed::{real_numbers, truncated_svd};
use hdf5_metno::types::VarLenUnicode;
use num_complex::Complex64;
use std::path::Path;
use tch::{Device, Tensor};

/// The only communication that the SVD needs.
pub trait SumOverRanks {
    /// Replaces each number by its sum over all ranks. All ranks call this together, with slices of the same length.
    fn sum_f64(&self, numbers: &mut [f64]) -> anyhow::Result<()>;
}

impl SumOverRanks for World {
    fn sum_f64(&self, numbers: &mut [f64]) -> anyhow::Result<()> {
        Ok(self.sum(numbers)?)
    }
}

/// One rank has the sum already.
pub struct SingleRank;

impl SumOverRanks for SingleRank {
    fn sum_f64(&self, _numbers: &mut [f64]) -> anyhow::Result<()> {
        Ok(())
    }
}

/// This rank's rows of something that is spread over the ranks.
#[derive(Clone, Copy)]
pub struct Share<'a> {
    /// `[local rows, bins]`, complex64 or complex128; there may be no row.
    pub waveforms: &'a Tensor,
    /// Position of the first local row among all; local rows are consecutive.
    pub first: usize,
    /// Rows on all ranks.
    pub total: usize,
}

/// A truncated SVD U s V^H of waveforms in one detector.
#[derive(Debug)]
pub struct SvdBasis {
    /// V `[bins, size]`, complex128, on the CPU.
    pub v: Tensor,
    /// Singular values, largest first.
    pub s: Vec<f64>,
    /// Columns: parameters of the validation waveforms, then `mismatch n=…` for each tested size.
    mismatches: Table,
}

impl SvdBasis {
    /// The basis of the `training` waveforms, of which the bins below `min_index` are zero. All ranks call this together;
    /// they get the same basis, which does not depend on their number but for rounding.
    ///
    /// The mean mismatch that the basis leaves is within a fraction of a percent of that of an exact SVD.
    pub fn compute(
        training: Share,
        min_index: usize,
        size: usize,
        seed: u32,
        sum: &dyn SumOverRanks,
    ) -> anyhow::Result<SvdBasis> {
        let (_, bins) = training.waveforms.size2()?;
        let used = bins - min_index as i64;
        let largest = training.total.min(used.max(0) as usize);
        if size == 0 || size > largest {
            let allowed = format!("1 to {largest} ({} waveforms, {used} bins)", training.total);
            return Err(DataError::Setting {
                key: "model.embedding_kwargs.svd.size".into(),
                message: format!("is {size}, but must be {allowed}"),
            }
            .into());
        }
        let rows = training.waveforms.f_narrow(1, min_index as i64, used)?;
        let svd = truncated_svd(&rows, training.total, size, seed, sum)?;
        Ok(SvdBasis {
            v: svd
                .v
                .f_to_device(Device::Cpu)?
                .f_constant_pad_nd([0, 0, min_index as i64, 0])?,
            s: svd.s,
            mismatches: Table::default(),
        })
    }

    /// Computes the mismatches of the `validation` waveforms, at sizes 50, 100, … and the full one. `parameters` are
    /// names and values `[local rows]` that go into the file beside them, the same names on all ranks.
    pub fn validate(
        &mut self,
        validation: Share,
        parameters: &[(String, Vec<f64>)],
        sum: &dyn SumOverRanks,
    ) -> anyhow::Result<()> {
        let sizes = mismatch::tested_sizes(self.s.len());
        let local = mismatch::mismatches(validation.waveforms, &self.v)?;
        let names = parameters.iter().map(|(name, _)| name.clone());
        let names: Vec<String> = names
            .chain(sizes.iter().map(|size| format!("mismatch n={size}")))
            .collect();
        // Every rank fills in its rows, the rest is zero: the sum is the whole table.
        let mut numbers = vec![0.0; names.len() * validation.total];
        for (column, values) in numbers.chunks_exact_mut(validation.total.max(1)).enumerate() {
            let own = &mut values[validation.first..];
            match parameters.get(column) {
                Some((_, parameter)) => own[..parameter.len()].copy_from_slice(parameter),
                None => {
                    let rows = local.chunks_exact(sizes.len());
                    own.iter_mut()
                        .zip(rows)
                        .for_each(|(value, row)| *value = row[column - parameters.len()]);
                }
            }
        }
        sum.sum_f64(&mut numbers)?;
        let columns = numbers
            .chunks_exact(validation.total.max(1))
            .map(<[f64]>::to_vec)
            .collect();
        self.mismatches = Table { names, columns };
        Ok(())
    }

    /// The tested sizes with the mismatches of all validation waveforms at each.
    pub fn mismatches(&self) -> impl Iterator<Item = (usize, &[f64])> {
        let sizes = mismatch::tested_sizes(self.s.len());
        let first = self.mismatches.columns.len().saturating_sub(sizes.len());
        sizes
            .into_iter()
            .zip(self.mismatches.columns[first..].iter().map(Vec::as_slice))
    }

    /// Statistics of the validation mismatches, as Dingo prints them.
    pub fn summary(&self) -> String {
        let parts: Vec<String> = self
            .mismatches()
            .map(|(size, values)| mismatch::summary(size, values))
            .collect();
        parts.join("\n")
    }

    /// V without the bins below `min_index` `[bins - min_index, size]`: what the network's first layer takes.
    pub fn network_rows(&self, min_index: usize) -> Result<Tensor, tch::TchError> {
        self.v
            .f_narrow(0, min_index as i64, self.v.size()[0] - min_index as i64)
    }

    /// Writes the file that Dingo's `SVDBasis(file_name=…)` opens.
    pub fn write(&self, path: &Path) -> Result<(), DataError> {
        let pairs = real_numbers(&self.v)?;
        let v: Vec<Complex64> = pairs
            .chunks_exact(2)
            .map(|pair| Complex64::new(pair[0], pair[1]))
            .collect();
        let shape = [v.len() / self.s.len(), self.s.len()];
        self.write_arrays(path, &v, shape).map_err(|error| DataError::File {
            file: path.display().to_string(),
            message: format!("cannot be written: {}", innermost(&error)),
        })
    }

    fn write_arrays(&self, path: &Path, v: &[Complex64], shape: [usize; 2]) -> hdf5_metno::Result<()> {
        let file = hdf5_metno::File::create(path)?;
        file.new_dataset::<Complex64>().shape(shape).create("V")?.write_raw(v)?;
        file.new_dataset::<f64>()
            .shape([self.s.len()])
            .create("s")?
            .write_raw(&self.s)?;
        if !self.mismatches.names.is_empty() {
            write_table(&file, "mismatches", &self.mismatches)?;
        }
        let kind: VarLenUnicode = "svd_basis".parse().map_err(|_| "a NUL in the dataset's type")?;
        file.new_attr::<VarLenUnicode>()
            .create("dataset_type")?
            .write_scalar(&kind)?;
        file.close()
    }
}
