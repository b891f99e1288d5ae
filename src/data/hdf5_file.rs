//! HDF5 files as Dingo writes them: opening, the settings attribute, arrays; every failure names the file and the key.
//!
//! HDF5 itself prints its error stack to stderr; the `hdf5` crate silences that, and the stack's innermost message goes
//! into the error instead.

use super::{python_literal, DataError};
use crate::gw::domain::UniformFrequencyDomain;
use crate::settings::Value;
use hdf5_metno::types::{
    CompoundField, CompoundType, FixedAscii, FloatSize, TypeDescriptor, VarLenAscii, VarLenUnicode,
};
use hdf5_metno::{h5check, sync::sync, Dataset, Datatype};
use hdf5_metno_sys::{h5d::H5Dread, h5d::H5Dwrite, h5p::H5P_DEFAULT, h5s::H5S_ALL};
use num_complex::Complex64;
use std::fs;
use std::path::{Path, PathBuf};

/// The first bytes of every HDF5 file that has no user block.
const SIGNATURE: &[u8] = b"\x89HDF\r\n\x1a\n";

/// An HDF5 file open for reading.
pub(super) struct DataFile {
    file: hdf5_metno::File,
    path: PathBuf,
}

/// A compound dataset whose numeric columns are read as float64.
#[derive(Debug, Default)]
pub(super) struct Table {
    pub names: Vec<String>,
    /// One vector per name, all of the same length.
    pub columns: Vec<Vec<f64>>,
}

impl DataFile {
    /// Opens a file, telling apart one that is missing, unreadable, not HDF5, or cut off.
    pub fn open(path: &Path) -> Result<Self, DataError> {
        let fail = |message: String| DataError::File {
            file: path.display().to_string(),
            message,
        };
        let length = match fs::metadata(path) {
            Ok(metadata) if metadata.is_dir() => return Err(fail("is a folder, not an HDF5 file".into())),
            Ok(metadata) => metadata.len(),
            Err(error) => return Err(fail(format!("cannot be read: {error}"))),
        };
        if let Err(error) = fs::File::open(path) {
            return Err(fail(format!("cannot be read: {error}")));
        }
        match hdf5_metno::File::open(path) {
            Ok(file) => Ok(Self {
                file,
                path: path.to_owned(),
            }),
            Err(error) if innermost(&error).contains("lock") => Err(fail(format!(
                "is being written, or lies on a file system without locks (then HDF5_USE_FILE_LOCKING=FALSE helps): {}",
                innermost(&error)
            ))),
            Err(error) if starts_like_hdf5(path) => Err(fail(format!(
                "is a damaged or truncated HDF5 file of {length} bytes: {}",
                innermost(&error)
            ))),
            Err(_) => Err(fail(format!("is not an HDF5 file ({length} bytes)"))),
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// An error about this file.
    pub fn error(&self, message: impl Into<String>) -> DataError {
        DataError::File {
            file: self.path.display().to_string(),
            message: message.into(),
        }
    }

    fn hdf5_error(&self, key: &str, error: &hdf5_metno::Error) -> DataError {
        self.error(format!("{key}: cannot be read: {}", innermost(error)))
    }

    /// The root of the file.
    pub fn hdf5(&self) -> &hdf5_metno::File {
        &self.file
    }

    /// As [`DataFile::has`], where groups on the way may be missing too.
    pub fn has_path(&self, path: &str) -> bool {
        let ends = path.match_indices('/').map(|(end, _)| end).chain([path.len()]);
        ends.into_iter().all(|end| self.has(&path[..end]))
    }

    /// Whether there is a group or dataset of that name.
    pub fn has(&self, name: &str) -> bool {
        self.file.link_exists(name)
    }

    /// The names in a group, sorted; an error if the file lacks it.
    pub fn members(&self, group: &str) -> Result<Vec<String>, DataError> {
        if !self.has(group) {
            return Err(self.lacking("group", group));
        }
        let names = self.file.group(group).and_then(|g| g.member_names());
        names.map_err(|error| self.hdf5_error(group, &error))
    }

    /// The dictionary in the attribute `settings`.
    pub fn settings(&self) -> Result<Value, DataError> {
        let names = self.file.attr_names().unwrap_or_default();
        if !names.iter().any(|name| name == "settings") {
            return Err(self.error(format!(
                "lacks the attribute 'settings', the dataset's settings as Dingo writes them (attributes: {})",
                listed(&names)
            )));
        }
        let attribute = self
            .file
            .attr("settings")
            .map_err(|error| self.hdf5_error("settings", &error))?;
        let bytes = attribute
            .read_scalar::<VarLenUnicode>()
            .map(|text| text.as_bytes().to_vec())
            .or_else(|_| {
                attribute
                    .read_scalar::<VarLenAscii>()
                    .map(|text| text.as_bytes().to_vec())
            })
            .or_else(|_| {
                attribute
                    .read_scalar::<FixedAscii<65536>>()
                    .map(|text| text.as_bytes().to_vec())
            })
            .map_err(|error| self.hdf5_error("attribute settings", &error))?;
        let text = String::from_utf8_lossy(&bytes);
        let value = python_literal::parse(&text)
            .map_err(|error| self.error(format!("attribute settings is not a Python dictionary: {error}")))?;
        match value {
            Value::Mapping(_) => Ok(value),
            other => Err(self.error(format!(
                "attribute settings is not a Python dictionary: {}",
                inline(&other)
            ))),
        }
    }

    /// The domain that a dataset's settings describe under `key`, which must be a uniform frequency domain.
    pub fn uniform_domain(&self, settings: &Value, key: &str) -> Result<UniformFrequencyDomain, DataError> {
        let domain = settings.get(key);
        let domain =
            domain.ok_or_else(|| self.error(format!("settings.{key}: is missing; it describes the domain")))?;
        match domain.get("type").and_then(Value::as_str) {
            // The two short names are those of older Dingo versions.
            Some("UniformFrequencyDomain" | "FrequencyDomain" | "FD") => {}
            other => {
                let kind = other.map_or_else(|| inline(domain), str::to_owned);
                let message =
                    format!("settings.{key}.type: {kind} is not supported yet (allowed: UniformFrequencyDomain)");
                return Err(self.error(message));
            }
        }
        let number = |name: &str| {
            let value = domain.get(name).and_then(Value::as_f64);
            value.ok_or_else(|| {
                self.error(format!(
                    "settings.{key}.{name}: a number is needed, in {}",
                    inline(domain)
                ))
            })
        };
        UniformFrequencyDomain::new(number("f_min")?, number("f_max")?, number("delta_f")?)
            .map_err(|error| self.error(format!("settings.{key}: {error}")))
    }

    /// A dataset by its path in the file; an error names the group or dataset that is missing and what there is.
    pub fn dataset(&self, name: &str) -> Result<Dataset, DataError> {
        if let Some((group, _)) = name.rsplit_once('/') {
            if !self.has(group) {
                return Err(self.lacking("group", group));
            }
        }
        if !self.has(name) {
            return Err(self.lacking("dataset", name));
        }
        self.file.dataset(name).map_err(|error| self.hdf5_error(name, &error))
    }

    fn lacking(&self, kind: &str, name: &str) -> DataError {
        let (parent, leaf) = name.rsplit_once('/').unwrap_or(("", name));
        let there = match parent {
            "" => self.file.member_names(),
            parent => self.file.group(parent).and_then(|g| g.member_names()),
        };
        let place = if parent.is_empty() {
            String::new()
        } else {
            format!(" in '{parent}'")
        };
        self.error(format!(
            "lacks the {kind} '{leaf}'{place} (there: {})",
            listed(&there.unwrap_or_default())
        ))
    }

    /// The shape of a dataset that must have two axes.
    pub fn matrix_shape(&self, name: &str, dataset: &Dataset) -> Result<[usize; 2], DataError> {
        match dataset.shape()[..] {
            [rows, columns] => Ok([rows, columns]),
            ref shape => Err(self.error(format!("{name}: has shape {shape:?}, where two axes are needed"))),
        }
    }

    /// A two-axis dataset of real numbers, row by row, and its shape.
    pub fn real_matrix(&self, name: &str) -> Result<(Vec<f64>, [usize; 2]), DataError> {
        let dataset = self.dataset(name)?;
        let shape = self.matrix_shape(name, &dataset)?;
        let values = dataset
            .read_raw::<f64>()
            .map_err(|error| self.hdf5_error(name, &error))?;
        Ok((values, shape))
    }

    /// A two-axis dataset of complex numbers, row by row, and its shape.
    pub fn complex_matrix(&self, name: &str) -> Result<(Vec<Complex64>, [usize; 2]), DataError> {
        let dataset = self.dataset(name)?;
        let shape = self.matrix_shape(name, &dataset)?;
        let values = dataset
            .read_raw::<Complex64>()
            .map_err(|error| self.hdf5_error(name, &error))?;
        Ok((values, shape))
    }

    /// Rows `first..last` of a complex matrix, the leading `width` columns of each.
    pub fn complex_rows(
        &self,
        name: &str,
        dataset: &Dataset,
        rows: std::ops::Range<usize>,
        width: usize,
    ) -> Result<Vec<Complex64>, DataError> {
        let block = dataset.read_slice_2d::<Complex64, _>((rows, 0..width));
        let block = block.map_err(|error| self.hdf5_error(name, &error))?;
        Ok(block.into_raw_vec_and_offset().0)
    }

    /// The numeric columns of a compound dataset with one axis. Columns of other types are left out.
    pub fn table(&self, name: &str) -> Result<Table, DataError> {
        let dataset = self.dataset(name)?;
        let count = match dataset.shape()[..] {
            [count] => count,
            ref shape => return Err(self.error(format!("{name}: has shape {shape:?}, where one axis is needed"))),
        };
        let descriptor = dataset.dtype().and_then(|dtype| dtype.to_descriptor());
        let fields = match descriptor.map_err(|error| self.hdf5_error(name, &error))? {
            TypeDescriptor::Compound(compound) => compound.fields,
            other => return Err(self.error(format!("{name}: is not a table of named columns but of {other}"))),
        };
        let names: Vec<String> = fields
            .into_iter()
            .filter(|f| is_number(&f.ty))
            .map(|f| f.name)
            .collect();
        let packed = read_table(&dataset, &names, count).map_err(|error| self.hdf5_error(name, &error))?;
        let columns = (0..names.len())
            .map(|column| packed.iter().skip(column).step_by(names.len()).copied().collect())
            .collect();
        Ok(Table { names, columns })
    }
}

/// Writes a compound dataset with one float64 column per name.
pub(super) fn write_table(group: &hdf5_metno::Group, name: &str, table: &Table) -> hdf5_metno::Result<()> {
    let count = table.columns.first().map_or(0, Vec::len);
    let descriptor = packed_descriptor(&table.names);
    let dataset = group
        .new_dataset_builder()
        .empty_as(&descriptor)
        .shape([count])
        .create(name)?;
    let memory_type = Datatype::from_descriptor(&descriptor)?;
    let packed: Vec<f64> = (0..count)
        .flat_map(|row| table.columns.iter().map(move |column| column[row]))
        .collect();
    // Sound: the buffer holds `count` records of one float64 per name, which is what `memory_type` describes.
    sync(|| unsafe {
        let buffer = packed.as_ptr().cast();
        h5check(H5Dwrite(
            dataset.id(),
            memory_type.id(),
            H5S_ALL,
            H5S_ALL,
            H5P_DEFAULT,
            buffer,
        ))
    })?;
    Ok(())
}

/// All records of a compound dataset, each as one float64 per name; HDF5 converts from whatever numbers the file has.
fn read_table(dataset: &Dataset, names: &[String], count: usize) -> hdf5_metno::Result<Vec<f64>> {
    let mut packed = vec![0.0f64; count * names.len()];
    if packed.is_empty() {
        return Ok(packed);
    }
    let memory_type = Datatype::from_descriptor(&packed_descriptor(names))?;
    // Sound: the buffer holds `count` records of one float64 per name, which is what `memory_type` describes, and the
    // dataset has `count` records.
    sync(|| unsafe {
        let buffer = packed.as_mut_ptr().cast();
        h5check(H5Dread(
            dataset.id(),
            memory_type.id(),
            H5S_ALL,
            H5S_ALL,
            H5P_DEFAULT,
            buffer,
        ))
    })?;
    Ok(packed)
}

/// A record of float64 values without gaps.
fn packed_descriptor(names: &[String]) -> TypeDescriptor {
    let width = FloatSize::U8 as usize;
    let field =
        |(i, name): (usize, &String)| CompoundField::new(name, TypeDescriptor::Float(FloatSize::U8), i * width, i);
    TypeDescriptor::Compound(CompoundType {
        fields: names.iter().enumerate().map(field).collect(),
        size: names.len() * width,
    })
}

fn is_number(descriptor: &TypeDescriptor) -> bool {
    matches!(
        descriptor,
        TypeDescriptor::Float(_) | TypeDescriptor::Integer(_) | TypeDescriptor::Unsigned(_)
    )
}

fn starts_like_hdf5(path: &Path) -> bool {
    use std::io::Read;
    let mut start = [0u8; SIGNATURE.len()];
    fs::File::open(path)
        .and_then(|mut file| file.read_exact(&mut start))
        .is_ok()
        && start == SIGNATURE
}

/// What HDF5 says about the cause: the last message of its error stack.
pub(super) fn innermost(error: &hdf5_metno::Error) -> String {
    match error.stack() {
        Some(stack) => stack
            .last()
            .map_or("unknown HDF5 error", |frame| frame.desc())
            .to_owned(),
        None => error.to_string(),
    }
}

/// Names separated by commas, for messages.
pub(super) fn listed(names: &[impl AsRef<str>]) -> String {
    if names.is_empty() {
        return "none".into();
    }
    names.iter().map(AsRef::as_ref).collect::<Vec<_>>().join(", ")
}

/// A settings value on one line, for messages.
pub(super) fn inline(value: &Value) -> String {
    serde_json::to_string(value).unwrap_or_else(|_| format!("{value:?}"))
}
