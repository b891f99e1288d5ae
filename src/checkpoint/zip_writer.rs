//! A zip of entries stored as they are, each aligned as PyTorch aligns them.
//!
//! The `zip` crate, by which archives are read, cannot write them: from 4 GiB on it describes each entry twice in the
//! central directory, and PyTorch takes the wrong one. The format is PKWARE's APPNOTE.TXT, sections 4.3 and 4.5.

use crc32fast::Hasher;
use std::io::{self, Seek, SeekFrom, Write};

/// PyTorch aligns the contents of entries, so that they can be memory-mapped.
const ALIGNMENT: u64 = 64;
/// The extra field that fills up to the alignment, by PyTorch's tag and with at least its own header.
const PADDING_TAG: u16 = 0x4246;
const ZIP64_TAG: u16 = 1;
const EXTRA_HEADER: u64 = 4;

const LOCAL_SIGNATURE: u32 = 0x0403_4b50;
const CENTRAL_SIGNATURE: u32 = 0x0201_4b50;
const ZIP64_END_SIGNATURE: u32 = 0x0606_4b50;
const ZIP64_LOCATOR_SIGNATURE: u32 = 0x0706_4b50;
const END_SIGNATURE: u32 = 0x0605_4b50;

/// Where the checksum stands in a local header, and how long that is without name and extra fields.
const LOCAL_CHECKSUM: u64 = 14;
const LOCAL_HEADER: u64 = 30;
/// Version 4.5, the first with zip64.
const VERSION: u16 = 45;
const UTF8_NAME: u16 = 1 << 11;
const STORED: u16 = 0;
/// 1 January 1980, the first day of the format: the same checkpoint is the same file.
const DATE: u16 = (1 << 5) | 1;
/// In place of a number that stands in the zip64 field.
const SEE_ZIP64: u32 = u32::MAX;

pub(super) struct ZipWriter<'w, W: Write + Seek> {
    out: &'w mut W,
    position: u64,
    entries: Vec<Entry>,
    /// Sizes and offsets from here on are written in zip64's longer fields.
    zip64_from: u64,
}

struct Entry {
    name: String,
    offset: u64,
    length: u64,
    checksum: u32,
}

#[derive(Clone, Copy)]
enum Field {
    U16(u16),
    U32(u32),
    U64(u64),
}
use Field::{U16, U32, U64};

impl<'w, W: Write + Seek> ZipWriter<'w, W> {
    /// Writes from the beginning of `out`.
    pub fn new(out: &'w mut W) -> Self {
        ZipWriter {
            out,
            position: 0,
            entries: Vec::new(),
            zip64_from: SEE_ZIP64.into(),
        }
    }

    /// Adds an entry of `length` bytes, which `write` writes.
    pub fn add(
        &mut self,
        name: &str,
        length: u64,
        write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> io::Result<()> {
        let offset = self.position;
        self.local_header(name, length)?;
        let mut contents = Contents {
            out: self.out,
            hasher: Hasher::new(),
            length: 0,
        };
        write(&mut contents)?;
        let (written, checksum) = (contents.length, contents.hasher.finalize());
        if written != length {
            return Err(io::Error::other(format!(
                "{written} bytes were written to {name} in place of {length}"
            )));
        }
        self.position += length;
        self.out.seek(SeekFrom::Start(offset + LOCAL_CHECKSUM))?;
        self.out.write_all(&checksum.to_le_bytes())?;
        self.out.seek(SeekFrom::Start(self.position))?;
        self.entries.push(Entry {
            name: name.to_string(),
            offset,
            length,
            checksum,
        });
        Ok(())
    }

    /// Writes the central directory.
    pub fn finish(mut self) -> io::Result<()> {
        let start = self.position;
        let entries = std::mem::take(&mut self.entries);
        entries.iter().try_for_each(|entry| self.central_header(entry))?;
        let (count, size) = (entries.len() as u64, self.position - start);
        let short_count = u16::try_from(count).unwrap_or(u16::MAX);
        if short_count == u16::MAX || start.max(size) >= self.zip64_from {
            self.zip64_end(count, start, size)?;
        }
        self.put(&[U32(END_SIGNATURE), U16(0), U16(0), U16(short_count), U16(short_count)])?;
        self.put(&[self.short(size), self.short(start), U16(0)])
    }

    fn local_header(&mut self, name: &str, length: u64) -> io::Result<()> {
        let is_large = length >= self.zip64_from;
        let zip64 = if is_large { vec![length, length] } else { Vec::new() };
        let zip64_size = if is_large { EXTRA_HEADER + 16 } else { 0 };
        let unpadded = self.position + LOCAL_HEADER + name.len() as u64 + zip64_size;
        let padding = match unpadded.wrapping_neg() % ALIGNMENT {
            0 => 0,
            gap if gap < EXTRA_HEADER => gap + ALIGNMENT,
            gap => gap,
        };
        let short_length = self.short(length);
        self.put(&[
            U32(LOCAL_SIGNATURE),
            U16(VERSION),
            U16(UTF8_NAME),
            U16(STORED),
            U16(0),
            U16(DATE),
        ])?;
        // The checksum is known, and filled in, once the contents are written.
        self.put(&[U32(0), short_length, short_length])?;
        self.put(&[name_length(name)?, U16((zip64_size + padding) as u16)])?;
        self.bytes(name.as_bytes())?;
        self.zip64_field(&zip64)?;
        if padding > 0 {
            let zeros = padding - EXTRA_HEADER;
            self.put(&[U16(PADDING_TAG), U16(zeros as u16)])?;
            self.bytes(&[0; (2 * ALIGNMENT) as usize][..zeros as usize])?;
        }
        Ok(())
    }

    fn central_header(&mut self, entry: &Entry) -> io::Result<()> {
        let numbers = [entry.length, entry.length, entry.offset];
        let zip64: Vec<u64> = numbers
            .into_iter()
            .filter(|&number| number >= self.zip64_from)
            .collect();
        let zip64_size = if zip64.is_empty() {
            0
        } else {
            EXTRA_HEADER + 8 * zip64.len() as u64
        };
        let (length, offset) = (self.short(entry.length), self.short(entry.offset));
        self.put(&[
            U32(CENTRAL_SIGNATURE),
            U16(VERSION),
            U16(VERSION),
            U16(UTF8_NAME),
            U16(STORED),
        ])?;
        self.put(&[U16(0), U16(DATE), U32(entry.checksum), length, length])?;
        // Then: comment, disk, attributes.
        self.put(&[
            name_length(&entry.name)?,
            U16(zip64_size as u16),
            U16(0),
            U16(0),
            U16(0),
            U32(0),
            offset,
        ])?;
        self.bytes(entry.name.as_bytes())?;
        self.zip64_field(&zip64)
    }

    fn zip64_field(&mut self, numbers: &[u64]) -> io::Result<()> {
        if numbers.is_empty() {
            return Ok(());
        }
        self.put(&[U16(ZIP64_TAG), U16(8 * numbers.len() as u16)])?;
        numbers.iter().try_for_each(|&number| self.put(&[U64(number)]))
    }

    fn zip64_end(&mut self, count: u64, start: u64, size: u64) -> io::Result<()> {
        let end = self.position;
        // The size of this record after the size itself.
        self.put(&[
            U32(ZIP64_END_SIGNATURE),
            U64(44),
            U16(VERSION),
            U16(VERSION),
            U32(0),
            U32(0),
        ])?;
        self.put(&[U64(count), U64(count), U64(size), U64(start)])?;
        self.put(&[U32(ZIP64_LOCATOR_SIGNATURE), U32(0), U64(end), U32(1)])
    }

    /// In 32 bits, if that is where the number is to be found.
    fn short(&self, number: u64) -> Field {
        U32(if number >= self.zip64_from {
            SEE_ZIP64
        } else {
            number as u32
        })
    }

    fn put(&mut self, fields: &[Field]) -> io::Result<()> {
        for field in fields {
            match field {
                U16(value) => self.bytes(&value.to_le_bytes())?,
                U32(value) => self.bytes(&value.to_le_bytes())?,
                U64(value) => self.bytes(&value.to_le_bytes())?,
            }
        }
        Ok(())
    }

    fn bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.position += bytes.len() as u64;
        self.out.write_all(bytes)
    }
}

fn name_length(name: &str) -> io::Result<Field> {
    let length = u16::try_from(name.len());
    length
        .map(U16)
        .map_err(|_| io::Error::other("the name of an entry is too long"))
}

/// What an entry's contents pass through on their way out.
struct Contents<'w, W> {
    out: &'w mut W,
    hasher: Hasher,
    length: u64,
}

impl<W: Write> Write for Contents<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes)?;
        self.hasher.update(&bytes[..written]);
        self.length += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Cursor, Read};
    use zip::ZipArchive;

    /// With every number in zip64's fields, which real files have from 4 GiB on, and with none there.
    #[test]
    fn another_reader_finds_what_was_written() {
        for zip64_from in [0, 100, SEE_ZIP64.into()] {
            let mut out = Cursor::new(Vec::new());
            let mut zip = ZipWriter::new(&mut out);
            zip.zip64_from = zip64_from;
            let entries: Vec<(String, Vec<u8>)> =
                (0..200).map(|n| (format!("a/{}", "n".repeat(n)), vec![7; n])).collect();
            for (name, contents) in &entries {
                zip.add(name, contents.len() as u64, |out| out.write_all(contents))
                    .unwrap();
            }
            zip.finish().unwrap();
            let mut archive = ZipArchive::new(out).unwrap();
            assert_eq!(archive.len(), entries.len());
            for (index, (name, contents)) in entries.iter().enumerate() {
                let mut entry = archive.by_index(index).unwrap();
                assert_eq!(entry.name(), name);
                assert_eq!(entry.data_start().unwrap() % ALIGNMENT, 0);
                let mut read = Vec::new();
                entry.read_to_end(&mut read).unwrap();
                assert_eq!(&read, contents);
            }
        }
    }

    #[test]
    fn an_entry_has_the_length_it_was_announced_with() {
        let mut out = Cursor::new(Vec::new());
        let error = ZipWriter::new(&mut out).add("a", 3, |out| out.write_all(b"four"));
        assert_eq!(
            error.unwrap_err().to_string(),
            "4 bytes were written to a in place of 3"
        );
    }
}
