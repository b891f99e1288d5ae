//! What any of Dingo's HDF5 files holds, without reading its large arrays.

use super::embedding_svd::mismatch_statistics;
use super::hdf5_file::DataFile;
use super::{python_literal, DataError};
use crate::settings::Value;
use hdf5_metno::types::{TypeDescriptor, VarLenAscii, VarLenUnicode};
use hdf5_metno::{Attribute, Container, Dataset, Group};
use std::path::Path;

/// Of waveforms, ASDs, an SVD basis, a model, or whatever else the file is.
#[derive(Debug)]
pub struct FileSummary {
    /// The attribute `dataset_type`; absent in old files.
    pub dataset_type: Option<String>,
    /// Of the Dingo that wrote the file.
    pub version: Option<String>,
    /// Attributes that are one text or number.
    pub attributes: Vec<(String, String)>,
    /// Dictionaries by name: attributes such as `settings`, and those of a model.
    pub dictionaries: Vec<(String, Value)>,
    pub arrays: Vec<ArraySummary>,
    /// Mean, standard deviation, percentiles of an SVD's mismatches in Dingo's words, one text for each tested size.
    pub mismatches: Vec<String>,
    /// Least and greatest GPS time of each detector's ASDs.
    pub gps_times: Vec<(String, [f64; 2])>,
}

/// A dataset of the file.
#[derive(Debug)]
pub struct ArraySummary {
    /// With its groups, such as `polarizations/h_plus`.
    pub path: String,
    pub shape: Vec<usize>,
    /// In numpy's words.
    pub element: String,
    /// Of a table.
    pub columns: Vec<String>,
}

impl FileSummary {
    /// # Errors
    /// The file is missing, no HDF5 file, or damaged.
    pub fn read(path: &Path) -> Result<FileSummary, DataError> {
        let file = DataFile::open(path)?;
        let mut summary = FileSummary {
            dataset_type: None,
            version: None,
            attributes: Vec::new(),
            dictionaries: Vec::new(),
            arrays: Vec::new(),
            mismatches: Vec::new(),
            gps_times: Vec::new(),
        };
        let unreadable = |error: hdf5_metno::Error| file.error(format!("cannot be read: {error}"));
        summary.read_attributes(file.hdf5()).map_err(unreadable)?;
        summary.read_group(file.hdf5(), "").map_err(unreadable)?;
        for table in ["mismatches", "svd/mismatches"] {
            if file.has_path(table) {
                let table = file.table(table)?;
                let tested = table.names.iter().zip(&table.columns).filter_map(|(name, values)| {
                    let size = name.strip_prefix("mismatch n=")?.parse().ok()?;
                    Some(mismatch_statistics(size, values))
                });
                summary.mismatches.extend(tested);
            }
        }
        Ok(summary)
    }

    fn read_attributes(&mut self, root: &Group) -> hdf5_metno::Result<()> {
        for name in root.attr_names()? {
            let Some(value) = scalar_of_attribute(&root.attr(&name)?) else {
                continue;
            };
            match (name.as_str(), python_literal::parse(&value)) {
                ("dataset_type", _) => self.dataset_type = Some(value),
                ("version", _) => self.version = Some(value),
                (_, Ok(dictionary @ Value::Mapping(_))) => self.dictionaries.push((name, dictionary)),
                _ => self.attributes.push((name, value)),
            }
        }
        Ok(())
    }

    fn read_group(&mut self, group: &Group, path: &str) -> hdf5_metno::Result<()> {
        let join = |name: &str| match path {
            "" => name.to_owned(),
            path => format!("{path}/{name}"),
        };
        for dataset in group.datasets()? {
            let name = dataset.name();
            let leaf = name.rsplit('/').next().unwrap_or_default();
            match (path, leaf) {
                ("", "version") => self.version = text_of(&dataset),
                ("serialized_dicts", leaf) => self
                    .dictionaries
                    .extend(json_of(&dataset).map(|json| (leaf.into(), json))),
                ("gps_times", detector) => self
                    .gps_times
                    .extend(range_of(&dataset).map(|range| (detector.into(), range))),
                _ => {}
            }
            let (element, columns) = describe(&dataset.dtype()?.to_descriptor()?);
            self.arrays.push(ArraySummary {
                path: join(leaf),
                shape: dataset.shape(),
                element,
                columns,
            });
        }
        for group in group.groups()? {
            let name = group.name();
            let leaf = name.rsplit('/').next().unwrap_or_default();
            self.read_group(&group, &join(leaf))?;
        }
        Ok(())
    }
}

fn scalar_of_attribute(attribute: &Attribute) -> Option<String> {
    text_of(attribute).or_else(|| {
        let number = attribute.read_scalar::<f64>().ok()?;
        Some(number.to_string())
    })
}

fn text_of(container: &Container) -> Option<String> {
    let unicode = container.read_scalar::<VarLenUnicode>().map(|text| text.to_string());
    let ascii = || container.read_scalar::<VarLenAscii>().map(|text| text.to_string());
    unicode.or_else(|_| ascii()).ok()
}

/// YAML reads JSON, and Python's NaN and Infinity as text.
fn json_of(dataset: &Dataset) -> Option<Value> {
    serde_yaml::from_str(&text_of(dataset)?).ok()
}

fn range_of(dataset: &Dataset) -> Option<[f64; 2]> {
    let numbers = dataset.read_raw::<f64>().ok()?;
    let least = numbers.iter().copied().reduce(f64::min)?;
    Some([least, numbers.iter().copied().reduce(f64::max)?])
}

/// The element type in numpy's words, and the columns of a table.
fn describe(descriptor: &TypeDescriptor) -> (String, Vec<String>) {
    let bits = |bytes: usize| 8 * bytes;
    let name = match descriptor {
        TypeDescriptor::Integer(size) => format!("int{}", bits(*size as usize)),
        TypeDescriptor::Unsigned(size) => format!("uint{}", bits(*size as usize)),
        TypeDescriptor::Float(size) => format!("float{}", bits(*size as usize)),
        TypeDescriptor::Boolean => "bool".into(),
        TypeDescriptor::Compound(compound) => {
            let names: Vec<String> = compound.fields.iter().map(|field| field.name.clone()).collect();
            return match names.iter().map(String::as_str).eq(["r", "i"]) {
                true => (format!("complex{}", bits(compound.size)), Vec::new()),
                false => ("table".into(), names),
            };
        }
        TypeDescriptor::FixedAscii(_) | TypeDescriptor::FixedUnicode(_) => "text".into(),
        TypeDescriptor::VarLenAscii | TypeDescriptor::VarLenUnicode => "text".into(),
        other => other.to_string(),
    };
    (name, Vec::new())
}
