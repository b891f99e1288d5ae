//! The zip that `torch.save` writes: entries stored uncompressed under one folder of any name, `data.pkl` and the raw
//! storages `data/0`, `data/1`, …

use super::error::Flaw;
use super::pickle::{Encoded, StorageSource};
use super::zip_writer::ZipWriter;
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom, Write};
use tch::{Kind, Tensor};
use zip::{CompressionMethod, ZipArchive};

/// The pickle holds names, numbers and settings, no tensors; those of large networks have a few MB.
const MAX_PICKLE_BYTES: u64 = 64 << 20;
/// PyTorch's number for this layout.
const FORMAT_VERSION: &[u8] = b"3\n";
/// Bytes of a tensor that are copied at a time on writing.
const CHUNK: usize = 4 << 20;
/// An open checkpoint file.
pub(super) struct ArchiveReader {
    zip: ZipArchive<BufReader<File>>,
    /// With the slash.
    folder: String,
    file_length: u64,
    /// What entries may still take of memory. Together they are not larger than the file, unless they overlap.
    unread: u64,
    storages: HashMap<String, Tensor>,
}

impl ArchiveReader {
    /// # Errors
    /// The file cannot be read, or is not a zip with the entries of a checkpoint, or has the other byte order.
    pub fn open(file: File) -> Result<Self, Flaw> {
        let mut file = BufReader::new(file);
        let file_length = file.seek(SeekFrom::End(0)).map_err(unreadable)?;
        refuse_other_formats(&mut file)?;
        let zip = ZipArchive::new(file).map_err(|error| {
            Flaw::new(format!(
                "not a whole PyTorch checkpoint: {error} (the file may be truncated)"
            ))
        })?;
        let pickles = zip.file_names().filter_map(|name| name.strip_suffix("data.pkl"));
        let folder = pickles
            .filter(|folder| folder.ends_with('/'))
            .min_by_key(|folder| folder.len());
        let folder =
            folder.ok_or_else(|| Flaw::new("a zip, but no PyTorch checkpoint: it has no data.pkl in a folder"))?;
        let mut reader = ArchiveReader {
            folder: folder.to_string(),
            zip,
            file_length,
            unread: file_length,
            storages: HashMap::new(),
        };
        reader.check_byte_order()?;
        Ok(reader)
    }

    pub fn pickle(&mut self) -> Result<Vec<u8>, Flaw> {
        self.entry("data.pkl", MAX_PICKLE_BYTES)
    }

    /// Files written before PyTorch 2.1 do not say; they are little-endian.
    fn check_byte_order(&mut self) -> Result<(), Flaw> {
        if self.zip.index_for_name(&format!("{}byteorder", self.folder)).is_none() {
            return Ok(());
        }
        match &self.entry("byteorder", 16)?[..] {
            b"little" => Ok(()),
            other => Err(Flaw::new(format!(
                "its byte order is {:?}; only little-endian checkpoints can be read",
                String::from_utf8_lossy(other)
            ))),
        }
    }

    /// The contents of an entry of at most `limit` bytes, its checksum verified.
    fn entry(&mut self, name: &str, limit: u64) -> Result<Vec<u8>, Flaw> {
        let full_name = format!("{}{name}", self.folder);
        let broken = |message: String| Flaw::new(format!("entry {full_name}: {message}"));
        let index = self
            .zip
            .index_for_name(&full_name)
            .ok_or_else(|| broken("missing".into()))?;
        let mut entry = self.zip.by_index(index).map_err(|error| broken(error.to_string()))?;
        let size = entry.size();
        if entry.compression() != CompressionMethod::Stored || entry.compressed_size() != size {
            return Err(broken("is compressed; PyTorch stores entries as they are".into()));
        }
        let end = entry.data_start().unwrap_or(u64::MAX).checked_add(size);
        if end.is_none_or(|end| end > self.file_length) {
            return Err(broken(format!("its {size} bytes reach beyond the end of the file")));
        }
        if size > limit || size > self.unread {
            return Err(broken(format!("{size} bytes are more than can be")));
        }
        let mut contents = Vec::with_capacity(size as usize);
        // To its end and no `take`: there the checksum is verified.
        entry
            .read_to_end(&mut contents)
            .map_err(|error| broken(error.to_string()))?;
        if contents.len() as u64 != size {
            return Err(broken(format!("{} of its {size} bytes are there", contents.len())));
        }
        self.unread -= size;
        Ok(contents)
    }
}

impl StorageSource for ArchiveReader {
    fn storage(&mut self, key: &str, kind: Kind, elements: usize) -> Result<Tensor, Flaw> {
        if let Some(storage) = self.storages.get(key) {
            if storage.f_kind()? != kind || storage.numel() != elements {
                return Err(Flaw::new(format!("storage {key:?} is described in two ways")));
            }
            return Ok(storage.shallow_clone());
        }
        let contents = self.entry(&format!("data/{key}"), u64::MAX)?;
        if elements.checked_mul(kind.elt_size_in_bytes()) != Some(contents.len()) {
            return Err(Flaw::new(format!(
                "storage {key:?} should hold {elements} elements of {kind:?} but has {} bytes",
                contents.len()
            )));
        }
        // Any other byte in a bool is undefined behaviour in C++.
        if kind == Kind::Bool && contents.iter().any(|&byte| byte > 1) {
            return Err(Flaw::new(format!(
                "storage {key:?} of bools has bytes other than 0 and 1"
            )));
        }
        let storage = Tensor::f_from_data_size(&contents, &[elements as i64], kind)?;
        self.storages.insert(key.to_string(), storage.shallow_clone());
        Ok(storage)
    }
}

/// Names the formats that a user may well have at hand and that are no zip.
fn refuse_other_formats(file: &mut (impl Read + Seek)) -> Result<(), Flaw> {
    // A pickle that begins with the long int 0x1950a86a20f9469cfc6c, by which torch.save marked its files.
    const LEGACY_TORCH: &[u8] = &[
        0x80, 0x02, 0x8a, 0x0a, 0x6c, 0xfc, 0x9c, 0x46, 0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19,
    ];
    const HDF5: &[u8] = b"\x89HDF\r\n\x1a\n";
    let mut start = Vec::new();
    file.rewind().map_err(unreadable)?;
    file.take(LEGACY_TORCH.len() as u64)
        .read_to_end(&mut start)
        .map_err(unreadable)?;
    file.rewind().map_err(unreadable)?;
    if start == LEGACY_TORCH {
        return Err(Flaw::new(
            "in torch.save's format from before PyTorch 1.6; convert it in Python: torch.save(torch.load(OLD), NEW)",
        ));
    }
    if start.starts_with(HDF5) {
        return Err(Flaw::new("an HDF5 file; training continues from .pt checkpoints"));
    }
    Ok(())
}

fn unreadable(error: io::Error) -> Flaw {
    Flaw::new(format!("cannot be read: {error}"))
}

/// Writes the zip, tensors a piece at a time.
pub(super) fn write_archive(out: &mut (impl Write + Seek), folder: &str, contents: &Encoded) -> io::Result<()> {
    let mut zip = ZipWriter::new(out);
    let mut add = |name: &str, bytes: &[u8]| {
        zip.add(&format!("{folder}/{name}"), bytes.len() as u64, |out| {
            out.write_all(bytes)
        })
    };
    // PyTorch takes the folder's name from the first entry.
    add("data.pkl", &contents.pickle)?;
    add("byteorder", b"little")?;
    add("version", FORMAT_VERSION)?;
    for (number, tensor) in contents.storages.iter().enumerate() {
        let length = tensor.numel() * tensor.kind().elt_size_in_bytes();
        zip.add(&format!("{folder}/data/{number}"), length as u64, |out| {
            write_elements(out, tensor)
        })?;
    }
    zip.finish()
}

/// The elements row by row, from whatever device and in whatever order they lie.
fn write_elements(out: &mut dyn Write, tensor: &Tensor) -> io::Result<()> {
    let elements = tensor.numel();
    let element_bytes = tensor.kind().elt_size_in_bytes();
    let row = tensor.f_reshape([elements as i64]).map_err(io::Error::other)?;
    let per_chunk = CHUNK / element_bytes;
    let mut buffer = vec![0u8; element_bytes * elements.min(per_chunk)];
    for start in (0..elements).step_by(per_chunk) {
        let count = per_chunk.min(elements - start);
        let chunk = row.f_narrow(0, start as i64, count as i64).map_err(io::Error::other)?;
        chunk.f_copy_data_u8(&mut buffer, count).map_err(io::Error::other)?;
        out.write_all(&buffer[..count * element_bytes])?;
    }
    Ok(())
}
