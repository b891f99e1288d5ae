//! Dingo's HDF5 format of a trained model, as `dingo_pt_to_hdf5` writes it: small dictionaries as JSON, weights as datasets.

use super::error::Flaw;
use super::fields::expected;
use super::json::to_json;
use super::object::{Dict, Object};
use hdf5_metno::types::VarLenUnicode;
use hdf5_metno::{File, Group, H5Type};
use std::io;
use std::path::Path;
use tch::{Device, Kind, Tensor};

/// The dictionaries that Dingo's inference reads.
const DICTIONARIES: [&str; 3] = ["model_kwargs", "epoch", "metadata"];

/// Numbers in a chunk, for checksums over parts of about a megabyte.
const CHUNK: usize = 1 << 18;

/// What goes into the file, ready to be written.
pub(super) struct Contents {
    /// Names and JSON.
    dictionaries: Vec<(&'static str, String)>,
    /// Names and tensors, on the CPU.
    weights: Vec<(String, Tensor)>,
    epoch: i64,
    version: String,
    approximant: Option<String>,
}

impl Contents {
    /// Of the root of a checkpoint.
    ///
    /// # Errors
    /// A dictionary that JSON cannot say, or weights that are none.
    pub fn of(root: &Dict) -> Result<Contents, Flaw> {
        let entry = |key: &str| root.get(key).ok_or_else(|| Flaw::at(key, "is missing"));
        let dictionary = |key: &'static str| {
            let json = to_json(entry(key)?).map_err(|flaw| flaw.under(key))?;
            Ok((key, json))
        };
        let weights = weights(entry("model_state_dict")?).map_err(|flaw| flaw.under("model_state_dict"))?;
        let epoch = entry("epoch")?;
        let not_a_number = || expected("an int", epoch).under("epoch");
        let generator = || {
            entry("metadata")
                .ok()?
                .get("dataset_settings")?
                .get("waveform_generator")
        };
        let approximant = generator().and_then(|generator| generator.get("approximant")?.as_str());
        Ok(Contents {
            dictionaries: DICTIONARIES.map(dictionary).into_iter().collect::<Result<_, Flaw>>()?,
            weights,
            epoch: epoch.as_i64().ok_or_else(not_a_number)?,
            // What Python says of a version that is absent.
            version: root.get("version").and_then(Object::as_str).unwrap_or("None").into(),
            approximant: approximant.map(String::from),
        })
    }

    /// Writes the file at `path`, which is to be known by `name`: Dingo opens it under no other.
    pub fn write(&self, path: &Path, name: &str) -> io::Result<()> {
        self.write_hdf5(path, name)
            .map_err(|error| io::Error::other(error.to_string()))
    }

    fn write_hdf5(&self, path: &Path, name: &str) -> hdf5_metno::Result<()> {
        let file = File::create(path)?;
        let group = file.create_group("serialized_dicts")?;
        for (key, json) in &self.dictionaries {
            group
                .new_dataset::<VarLenUnicode>()
                .create(*key)?
                .write_scalar(&text(json)?)?;
        }
        let group = file.create_group("model_weights")?;
        for (name, tensor) in &self.weights {
            write_tensor(&group, name, tensor)?;
        }
        let attribute = |key: &str, value: &str| {
            let attribute = file.new_attr::<VarLenUnicode>().create(key)?;
            attribute.write_scalar(&text(value)?)
        };
        attribute("CANONICAL_FILE_BASENAME", name)?;
        if let Some(approximant) = &self.approximant {
            attribute("approximant", approximant)?;
        }
        file.new_attr::<i64>().create("epoch")?.write_scalar(&self.epoch)?;
        attribute("version", &self.version)?;
        attribute("dataset_type", "trained_model")?;
        file.close()
    }
}

fn weights(state_dict: &Object) -> Result<Vec<(String, Tensor)>, Flaw> {
    let dict = state_dict.as_dict().ok_or_else(|| expected("a dict", state_dict))?;
    let entries = dict.entries.iter().map(|(name, value)| {
        let name = name.as_str().ok_or_else(|| expected("a string", name))?;
        let tensor = value
            .as_tensor()
            .ok_or_else(|| expected("a tensor", value).under(name))?;
        Ok((name.to_owned(), tensor.f_to_device(Device::Cpu)?.f_contiguous()?))
    });
    entries.collect()
}

fn write_tensor(group: &Group, name: &str, tensor: &Tensor) -> hdf5_metno::Result<()> {
    match tensor.kind() {
        Kind::Int64 => write_numbers::<i64>(group, name, tensor),
        Kind::Double => write_numbers::<f64>(group, name, tensor),
        // Others are read as single precision by Dingo, whatever they are.
        _ => write_numbers::<f32>(group, name, tensor),
    }
}

fn write_numbers<T: H5Type + tch::kind::Element + Copy>(
    group: &Group,
    name: &str,
    tensor: &Tensor,
) -> hdf5_metno::Result<()>
where
    Vec<T>: TryFrom<Tensor, Error = tch::TchError>,
{
    let flat = tensor.f_to_kind(T::KIND).and_then(|tensor| tensor.f_reshape([-1]));
    let numbers = flat.and_then(Vec::<T>::try_from).map_err(|error| error.to_string())?;
    let shape: Vec<usize> = tensor.size().iter().map(|&size| size as usize).collect();
    let dataset = group.new_dataset::<T>();
    let dataset = match shape.is_empty() || numbers.is_empty() {
        // HDF5 has checksums for chunks only, and no chunks of nothing.
        true => dataset.shape(&shape[..]).create(name)?,
        false => dataset
            .shape(&shape[..])
            .chunk(&chunk(&shape)[..])
            .fletcher32()
            .create(name)?,
    };
    dataset.write_raw(&numbers)
}

/// Whole rows, as many as make a chunk.
fn chunk(shape: &[usize]) -> Vec<usize> {
    let row: usize = shape[1..].iter().product();
    let mut chunk = shape.to_vec();
    chunk[0] = (CHUNK / row.max(1)).clamp(1, shape[0]);
    chunk
}

fn text(text: &str) -> hdf5_metno::Result<VarLenUnicode> {
    text.parse()
        .map_err(|_| "a text with a NUL has no place in HDF5".into())
}
