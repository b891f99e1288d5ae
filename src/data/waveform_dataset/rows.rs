//! The rows of one polarization: in memory, or mapped from the file.

use crate::data::hdf5_file::DataFile;
use crate::data::DataError;
use hdf5_metno::types::{FloatSize, TypeDescriptor};
use hdf5_metno::{datatype::ByteOrder, Dataset};
use memmap2::{Mmap, MmapOptions};
use std::fs;
use std::path::PathBuf;

/// Up to this size all values of a mapped dataset are checked when it is opened; above, a sample of rows (and every
/// batch when it is read).
const FULL_CHECK_BYTES: usize = 1 << 30;

/// Rows of a larger dataset that are checked when it is opened, spread evenly over the file.
const ROWS_CHECKED: usize = 1024;

/// Memory for one block when a dataset is read through HDF5.
const BLOCK_BYTES: usize = 64 << 20;

/// The same for a survey, which is to take seconds also where every row is read over a network.
const SURVEY_FULL_CHECK_BYTES: usize = 1 << 27;
const SURVEY_ROWS_CHECKED: usize = 64;

/// What is done with the rows when a dataset is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    /// Read into memory.
    Memory,
    /// Left on disk where they lie in one piece, else read into memory.
    Mapped,
    /// Looked at, and no more.
    Survey,
}

/// A complex matrix of which the leading columns are used; rows are handed out as (re, im) pairs in single precision.
pub(super) struct WaveformRows {
    store: Store,
    count: usize,
    width: usize,
    /// In the file, before compression.
    stored_bytes: u64,
    file: PathBuf,
    key: String,
}

enum Store {
    /// `[count, 2 width]`
    Memory(Vec<f32>),
    /// The whole dataset as the file holds it, in the page cache of the node.
    Mapped { map: Mmap, layout: RowLayout },
    /// A survey of a dataset that cannot be mapped.
    Surveyed,
}

/// How a row lies in the file: little-endian (re, im) pairs of this width.
#[derive(Clone, Copy)]
struct RowLayout {
    float: FloatSize,
    stored_width: usize,
}

impl RowLayout {
    fn row_bytes(&self) -> usize {
        2 * self.float as usize * self.stored_width
    }

    /// Decodes the leading part of a row; false if a number in it is not finite.
    fn decode(&self, row: &[u8], out: &mut [f32]) -> bool {
        match self.float {
            FloatSize::U4 => {
                for (value, bytes) in out.iter_mut().zip(row.chunks_exact(4)) {
                    *value = f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
                }
            }
            FloatSize::U8 => {
                for (value, bytes) in out.iter_mut().zip(row.chunks_exact(8)) {
                    let bytes = [
                        bytes[0], bytes[1], bytes[2], bytes[3], bytes[4], bytes[5], bytes[6], bytes[7],
                    ];
                    *value = f64::from_le_bytes(bytes) as f32;
                }
            }
        }
        all_finite(out)
    }
}

impl WaveformRows {
    /// Opens the complex dataset `key`, of which the first `width` columns are used.
    ///
    /// A contiguous dataset can be mapped; any other is read into memory.
    pub fn open(
        file: &DataFile,
        key: &str,
        dataset: &Dataset,
        width: usize,
        access: Access,
    ) -> Result<Self, DataError> {
        let [count, stored_width] = file.matrix_shape(key, dataset)?;
        let mapped = map_dataset(file, key, dataset, count, stored_width)?;
        if access == Access::Mapped && mapped.is_none() {
            log::warn!(
                "{}: {key} is chunked or compressed and cannot be left on disk; reading it into memory ({} MB). \
                 A contiguous, uncompressed dataset would be shared by all ranks of a node.",
                file.path().display(),
                count * width * 8 / 1_000_000
            );
        }
        let mut rows = Self {
            store: Store::Memory(Vec::new()),
            count,
            width,
            stored_bytes: (count * stored_width * dataset.dtype().map_or(0, |dtype| dtype.size())) as u64,
            file: file.path().to_owned(),
            key: key.to_owned(),
        };
        match (mapped, access) {
            (Some((map, layout)), Access::Memory) => {
                rows.store = Store::Mapped { map, layout };
                let mut values = vec![0f32; count * 2 * width];
                rows.copy_rows(0..count, &mut values)?;
                rows.store = Store::Memory(values);
            }
            (Some((map, layout)), Access::Mapped) => {
                rows.store = Store::Mapped { map, layout };
                rows.check(FULL_CHECK_BYTES, ROWS_CHECKED)?;
            }
            (Some((map, layout)), Access::Survey) => {
                rows.store = Store::Mapped { map, layout };
                rows.check(SURVEY_FULL_CHECK_BYTES, SURVEY_ROWS_CHECKED)?;
            }
            (None, Access::Survey) => {
                rows.survey_through_hdf5(file, dataset)?;
                rows.store = Store::Surveyed;
            }
            (None, _) => rows.store = Store::Memory(rows.read_through_hdf5(file, dataset)?),
        }
        Ok(rows)
    }

    pub fn count(&self) -> usize {
        self.count
    }

    /// Columns in use.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Bytes that reading a row takes.
    pub fn row_bytes(&self) -> usize {
        match &self.store {
            Store::Memory(_) | Store::Surveyed => 2 * self.width * std::mem::size_of::<f32>(),
            Store::Mapped { layout, .. } => 2 * layout.float as usize * self.width,
        }
    }

    pub fn stored_bytes(&self) -> u64 {
        self.stored_bytes
    }

    pub fn can_be_mapped(&self) -> bool {
        matches!(self.store, Store::Mapped { .. })
    }

    /// Copies rows to `out` (`[rows, 2 width]`), in the order given. Errors when a number in them is not finite, or a
    /// row is not there.
    pub fn copy_rows(&self, rows: impl IntoIterator<Item = usize>, out: &mut [f32]) -> Result<(), DataError> {
        let length = 2 * self.width;
        for (row, out) in rows.into_iter().zip(out.chunks_exact_mut(length)) {
            if row >= self.count {
                return Err(self.error(format!("sample {row} was asked for, but there are {}", self.count)));
            }
            match &self.store {
                Store::Memory(values) => out.copy_from_slice(&values[row * length..(row + 1) * length]),
                Store::Mapped { map, layout } => {
                    let bytes = &map[row * layout.row_bytes()..(row + 1) * layout.row_bytes()];
                    if !layout.decode(bytes, out) {
                        return Err(self.not_finite(row, out));
                    }
                }
                Store::Surveyed => return Err(self.error("was surveyed, not read".into())),
            }
        }
        Ok(())
    }

    /// Checks that all rows hold finite numbers when they have `all_up_to` bytes or fewer, else `some` of them.
    fn check(&self, all_up_to: usize, some: usize) -> Result<(), DataError> {
        let step = match self.stored_bytes <= all_up_to as u64 {
            true => 1,
            false => self.count.div_ceil(some),
        };
        let mut scratch = vec![0f32; 2 * self.width];
        (0..self.count)
            .step_by(step)
            .try_for_each(|row| self.copy_rows([row], &mut scratch))
    }

    /// As [`WaveformRows::check`], for a dataset that is chunked or compressed.
    fn survey_through_hdf5(&self, file: &DataFile, dataset: &Dataset) -> Result<(), DataError> {
        if self.stored_bytes <= SURVEY_FULL_CHECK_BYTES as u64 {
            return self.read_through_hdf5(file, dataset).map(drop);
        }
        let step = self.count.div_ceil(SURVEY_ROWS_CHECKED);
        (0..self.count).step_by(step).try_for_each(|row| {
            let numbers = file.complex_rows(&self.key, dataset, row..row + 1, self.width)?;
            let values: Vec<f32> = numbers.iter().flat_map(|z| [z.re as f32, z.im as f32]).collect();
            match all_finite(&values) {
                true => Ok(()),
                false => Err(self.not_finite(row, &values)),
            }
        })
    }

    fn read_through_hdf5(&self, file: &DataFile, dataset: &Dataset) -> Result<Vec<f32>, DataError> {
        let block = (BLOCK_BYTES / (16 * self.width)).max(1);
        let mut values = Vec::with_capacity(self.count * 2 * self.width);
        for first in (0..self.count).step_by(block) {
            let rows = first..(first + block).min(self.count);
            let numbers = file.complex_rows(&self.key, dataset, rows, self.width)?;
            values.extend(numbers.iter().flat_map(|z| [z.re as f32, z.im as f32]));
        }
        match values.chunks_exact(2 * self.width).position(|row| !all_finite(row)) {
            Some(row) => Err(self.not_finite(row, &values[row * 2 * self.width..])),
            None => Ok(values),
        }
    }

    fn error(&self, message: String) -> DataError {
        DataError::File {
            file: self.file.display().to_string(),
            message: format!("{}: {message}", self.key),
        }
    }

    fn not_finite(&self, row: usize, values: &[f32]) -> DataError {
        let position = values.iter().position(|v| !v.is_finite()).unwrap_or(0);
        let (column, value) = (position / 2, values[position]);
        self.error(format!(
            "sample {row} is {value} in column {column}; waveforms must be finite numbers"
        ))
    }
}

/// Maps a dataset that lies in the file in one piece, uncompressed, as little-endian pairs; `None` for any other.
fn map_dataset(
    file: &DataFile,
    key: &str,
    dataset: &Dataset,
    count: usize,
    stored_width: usize,
) -> Result<Option<(Mmap, RowLayout)>, DataError> {
    let (Some(float), Some(offset)) = (pair_type(file, key, dataset)?, dataset.offset()) else {
        return Ok(None);
    };
    let layout = RowLayout { float, stored_width };
    let length = count * layout.row_bytes();
    let failed = |error: std::io::Error| file.error(format!("{key}: cannot be mapped: {error}"));
    let plain = fs::File::open(file.path()).map_err(failed)?;
    let available = plain.metadata().map_err(failed)?.len();
    if offset + length as u64 > available {
        let message = format!(
            "{key}: reaches byte {}, but the file has only {available}",
            offset + length as u64
        );
        return Err(file.error(message));
    }
    // Sound as long as nobody shortens or rewrites the file during the training, which no reader of the file could
    // survive; the bytes are only ever decoded as numbers.
    let map = unsafe { MmapOptions::new().offset(offset).len(length).map(&plain) }.map_err(failed)?;
    Ok(Some((map, layout)))
}

/// The float type of a complex dataset laid out as little-endian pairs without gaps, `None` if laid out otherwise. An
/// error if the dataset is not complex at all.
fn pair_type(file: &DataFile, key: &str, dataset: &Dataset) -> Result<Option<FloatSize>, DataError> {
    let not_complex = |found: String| file.error(format!("{key}: holds {found}, where complex numbers are needed"));
    let dtype = dataset.dtype().map_err(|error| not_complex(error.to_string()))?;
    let descriptor = dtype.to_descriptor().map_err(|error| not_complex(error.to_string()))?;
    let TypeDescriptor::Compound(compound) = &descriptor else {
        return Err(not_complex(descriptor.to_string()));
    };
    let [re, im] = &compound.fields[..] else {
        return Err(not_complex(descriptor.to_string()));
    };
    match (&re.ty, &im.ty) {
        _ if (re.name.as_str(), im.name.as_str()) != ("r", "i") => Err(not_complex(descriptor.to_string())),
        (TypeDescriptor::Float(float), TypeDescriptor::Float(other)) => {
            let size = *float as usize;
            let plain = float == other && (re.offset, im.offset, compound.size) == (0, size, 2 * size);
            let little_endian = dtype.byte_order() == ByteOrder::LittleEndian;
            Ok((plain && little_endian).then_some(*float))
        }
        _ => Err(not_complex(descriptor.to_string())),
    }
}

/// Tells whether all numbers are finite, without branches, so that it vectorizes.
fn all_finite(values: &[f32]) -> bool {
    const EXPONENT: u32 = 0x7f80_0000;
    !values
        .iter()
        .fold(false, |found, value| found | (value.to_bits() & EXPONENT == EXPONENT))
}
