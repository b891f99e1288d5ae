//! The file of a basis, in the layout of Dingo's `SVDBasis`, written and read.

use super::distributed::real_numbers;
use super::SvdBasis;
use crate::data::hdf5_file::{innermost, write_table, DataFile, Table};
use crate::data::DataError;
use hdf5_metno::types::VarLenUnicode;
use num_complex::Complex64;
use std::fs;
use std::path::Path;
use tch::Tensor;

/// Attribute that Dingo does not know: what the basis was made from.
const MADE_FROM: &str = "made_from";

const MISMATCHES: &str = "mismatches";

impl SvdBasis {
    /// Writes the file that Dingo's `SVDBasis(file_name=…)` opens. It appears under its name only when it is complete.
    ///
    /// # Errors
    /// [`DataError::File`] naming the file.
    pub fn write(&self, path: &Path) -> Result<(), DataError> {
        let fail = |reason: String| DataError::File {
            file: path.display().to_string(),
            message: format!("cannot be written: {reason}"),
        };
        let partial = path.with_extension("hdf5.partial");
        let written = self.write_arrays(&partial).map_err(|error| fail(innermost(&error)));
        let written = written.and_then(|()| fs::rename(&partial, path).map_err(|error| fail(error.to_string())));
        if written.is_err() {
            // It may never have come to exist; the first error is the one to tell.
            let _ = fs::remove_file(&partial);
        }
        written
    }

    fn write_arrays(&self, path: &Path) -> hdf5_metno::Result<()> {
        let pairs = real_numbers(&self.v).map_err(|error| error.to_string())?;
        let v: Vec<Complex64> = pairs
            .chunks_exact(2)
            .map(|pair| Complex64::new(pair[0], pair[1]))
            .collect();
        let shape = [v.len() / self.s.len(), self.s.len()];
        let file = hdf5_metno::File::create(path)?;
        file.new_dataset::<Complex64>()
            .shape(shape)
            .create("V")?
            .write_raw(&v)?;
        file.new_dataset::<f64>()
            .shape([self.s.len()])
            .create("s")?
            .write_raw(&self.s)?;
        if !self.mismatches.names.is_empty() {
            write_table(&file, MISMATCHES, &self.mismatches)?;
        }
        let texts = [("dataset_type", "svd_basis"), (MADE_FROM, &self.made_from)];
        for (name, text) in texts.into_iter().filter(|(_, text)| !text.is_empty()) {
            let text: VarLenUnicode = text.parse().map_err(|_| "a NUL in an attribute")?;
            file.new_attr::<VarLenUnicode>().create(name)?.write_scalar(&text)?;
        }
        file.close()
    }

    /// What the basis in a file was made from; empty when the file does not say.
    ///
    /// # Errors
    /// A file that is no HDF5 file.
    pub fn origin(path: &Path) -> Result<String, DataError> {
        let file = DataFile::open(path)?;
        let attribute = file.hdf5().attr(MADE_FROM);
        let text = attribute.and_then(|attribute| attribute.read_scalar::<VarLenUnicode>());
        Ok(text.map_or_else(|_| String::new(), |text| text.as_str().to_owned()))
    }

    /// Reads a file that [`SvdBasis::write`] wrote.
    ///
    /// # Errors
    /// [`DataError::File`] when it is damaged: arrays that are missing, do not fit together or hold what is no number.
    pub fn read(path: &Path) -> Result<SvdBasis, DataError> {
        let file = DataFile::open(path)?;
        let (v, [bins, size]) = file.complex_matrix("V")?;
        let s = file.dataset("s")?.read_raw::<f64>();
        let s = s.map_err(|error| file.error(format!("s: {}", innermost(&error))))?;
        let finite = |number: &f64| number.is_finite();
        if s.len() != size || !s.iter().all(finite) || !v.iter().all(|v| finite(&v.re) && finite(&v.im)) {
            return Err(file.error("V and s are not the numbers of a basis"));
        }
        let pairs: Vec<f64> = v.iter().flat_map(|v| [v.re, v.im]).collect();
        let pairs = Tensor::f_from_slice(&pairs)?.f_view([bins as i64, size as i64, 2])?;
        let mismatches = match file.has(MISMATCHES) {
            true => file.table(MISMATCHES)?,
            false => Table::default(),
        };
        Ok(SvdBasis {
            v: pairs.f_view_as_complex()?,
            s,
            mismatches,
            made_from: SvdBasis::origin(path)?,
        })
    }
}
