//! Objects as a pickle of protocol 2, in the opcodes and names that `torch.load(weights_only=True)` accepts.

use super::super::element_type::storage_of_kind;
use super::super::error::Flaw;
use super::super::object::{Dict, Object};
use super::{opcode as op, MAX_DEPTH};
use std::collections::HashMap;
use tch::{Device, Tensor};

/// A pickle and the tensors whose elements, row by row, are the storages that its persistent ids `0`, `1`, … stand for.
pub struct Encoded {
    pub pickle: Vec<u8>,
    pub storages: Vec<Tensor>,
}

/// # Errors
/// A tensor of a type that PyTorch has no storage for, or objects nested too deep.
pub fn encode(object: &Object) -> Result<Encoded, Flaw> {
    let mut writer = Writer {
        pickle: vec![op::PROTO, 2],
        storages: Vec::new(),
        memo: HashMap::new(),
        written: HashMap::new(),
    };
    writer.object(object, 0)?;
    writer.pickle.push(op::STOP);
    Ok(Encoded {
        pickle: writer.pickle,
        storages: writer.storages,
    })
}

struct Writer {
    pickle: Vec<u8>,
    storages: Vec<Tensor>,
    /// Strings and globals already written, by the bytes that stood for them: they recur for every tensor.
    memo: HashMap<Vec<u8>, u32>,
    /// The number of each storage by the memory it lies in: tensors that are the same memory are written once.
    written: HashMap<Memory, usize>,
}

#[derive(PartialEq, Eq, Hash)]
struct Memory {
    address: usize,
    on_gpu: Option<usize>,
    elements: usize,
    storage_type: &'static str,
}

impl Writer {
    fn object(&mut self, object: &Object, depth: usize) -> Result<(), Flaw> {
        if depth > MAX_DEPTH {
            return Err(Flaw::new(format!("is nested deeper than {MAX_DEPTH}")));
        }
        match object {
            Object::None => self.pickle.push(op::NONE),
            Object::Bool(value) => self.bool(*value),
            Object::Int(value) => self.int(*value),
            Object::Float(value) => {
                self.pickle.push(op::BINFLOAT);
                self.pickle.extend(value.to_be_bytes());
            }
            Object::String(text) => self.text(text),
            Object::Bytes(bytes) => self.bytes(bytes),
            Object::List(items) => {
                self.pickle.push(op::EMPTY_LIST);
                if !items.is_empty() {
                    self.pickle.push(op::MARK);
                    self.items(items, depth)?;
                    self.pickle.push(op::APPENDS);
                }
            }
            Object::Tuple(items) => {
                self.open_tuple(items.len());
                self.items(items, depth)?;
                self.close_tuple(items.len());
            }
            Object::Dict(dict) => self.dict(dict, depth)?,
            Object::Tensor(tensor) => self.tensor(tensor)?,
        }
        Ok(())
    }

    fn items(&mut self, items: &[Object], depth: usize) -> Result<(), Flaw> {
        items.iter().try_for_each(|item| self.object(item, depth + 1))
    }

    fn bool(&mut self, value: bool) {
        self.pickle.push(if value { op::NEWTRUE } else { op::NEWFALSE });
    }

    /// In as few bytes as Python uses.
    fn int(&mut self, value: i128) {
        if let Ok(small) = u8::try_from(value) {
            self.pickle.extend([op::BININT1, small]);
        } else if let Ok(small) = u16::try_from(value) {
            self.pickle.push(op::BININT2);
            self.pickle.extend(small.to_le_bytes());
        } else if let Ok(small) = i32::try_from(value) {
            self.pickle.push(op::BININT);
            self.pickle.extend(small.to_le_bytes());
        } else {
            self.pickle.extend([op::LONG1, size_of::<i128>() as u8]);
            self.pickle.extend(value.to_le_bytes());
        }
    }

    fn text(&mut self, text: &str) {
        let mut bytes = vec![op::BINUNICODE];
        // A string of 4 GiB has no place in a checkpoint's settings.
        bytes.extend((text.len() as u32).to_le_bytes());
        bytes.extend(text.as_bytes());
        self.memoized(bytes);
    }

    fn global(&mut self, module: &str, name: &str) {
        let mut bytes = vec![op::GLOBAL];
        bytes.extend(format!("{module}\n{name}\n").as_bytes());
        self.memoized(bytes);
    }

    /// Writes the opcodes and remembers them, or refers to them if they were written before.
    fn memoized(&mut self, bytes: Vec<u8>) {
        if let Some(&slot) = self.memo.get(&bytes) {
            self.slot(op::BINGET, op::LONG_BINGET, slot);
            return;
        }
        let slot = self.memo.len() as u32;
        self.pickle.extend(&bytes);
        self.slot(op::BINPUT, op::LONG_BINPUT, slot);
        self.memo.insert(bytes, slot);
    }

    fn slot(&mut self, short: u8, long: u8, slot: u32) {
        match u8::try_from(slot) {
            Ok(small) => self.pickle.extend([short, small]),
            Err(_) => {
                self.pickle.push(long);
                self.pickle.extend(slot.to_le_bytes());
            }
        }
    }

    /// Protocol 2 has no bytes; Python writes them as text to be encoded as Latin-1.
    fn bytes(&mut self, bytes: &[u8]) {
        self.global("_codecs", "encode");
        self.text(&bytes.iter().map(|&byte| char::from(byte)).collect::<String>());
        self.text("latin1");
        self.pickle.extend([op::TUPLE2, op::REDUCE]);
    }

    fn open_tuple(&mut self, length: usize) {
        if length > 3 {
            self.pickle.push(op::MARK);
        }
    }

    fn close_tuple(&mut self, length: usize) {
        self.pickle.push(match length {
            0 => op::EMPTY_TUPLE,
            1 => op::TUPLE1,
            2 => op::TUPLE2,
            3 => op::TUPLE3,
            _ => op::TUPLE,
        });
    }

    fn int_tuple(&mut self, items: &[i64]) {
        self.open_tuple(items.len());
        items.iter().for_each(|&item| self.int(item.into()));
        self.close_tuple(items.len());
    }

    fn dict(&mut self, dict: &Dict, depth: usize) -> Result<(), Flaw> {
        if dict.ordered {
            self.empty_ordered_dict();
        } else {
            self.pickle.push(op::EMPTY_DICT);
        }
        self.entries(&dict.entries, depth)?;
        if dict.ordered && !dict.attributes.is_empty() {
            self.pickle.push(op::EMPTY_DICT);
            self.entries(&dict.attributes, depth)?;
            self.pickle.push(op::BUILD);
        }
        Ok(())
    }

    fn empty_ordered_dict(&mut self) {
        self.global("collections", "OrderedDict");
        self.pickle.extend([op::EMPTY_TUPLE, op::REDUCE]);
    }

    fn entries(&mut self, entries: &[(Object, Object)], depth: usize) -> Result<(), Flaw> {
        if entries.is_empty() {
            return Ok(());
        }
        self.pickle.push(op::MARK);
        for (key, value) in entries {
            let under = |flaw: Flaw| flaw.under(key.as_str().unwrap_or("(key)"));
            self.object(key, depth + 1).map_err(under)?;
            self.object(value, depth + 1).map_err(under)?;
        }
        self.pickle.push(op::SETITEMS);
        Ok(())
    }

    /// A tensor is `_rebuild_tensor_v2(storage, offset, size, stride, requires_grad, hooks)`. It is written contiguous,
    /// as lying on the CPU and without gradient, wherever it came from.
    fn tensor(&mut self, tensor: &Tensor) -> Result<(), Flaw> {
        let kind = tensor.f_kind()?;
        let storage_type = storage_of_kind(kind)
            .ok_or_else(|| Flaw::new(format!("is a tensor of {kind:?}, which a checkpoint cannot hold")))?;
        let size = tensor.size();
        let storage = self.storage_number(tensor, storage_type)?;

        self.global("torch._utils", "_rebuild_tensor_v2");
        self.pickle.extend([op::MARK, op::MARK]);
        self.text("storage");
        self.global("torch", storage_type);
        self.text(&storage.to_string());
        self.text("cpu");
        self.int(tensor.numel() as i128);
        self.pickle.extend([op::TUPLE, op::BINPERSID]);
        self.int(0);
        self.int_tuple(&size);
        self.int_tuple(&row_major_strides(&size));
        self.bool(false);
        self.empty_ordered_dict();
        self.pickle.extend([op::TUPLE, op::REDUCE]);
        Ok(())
    }

    fn storage_number(&mut self, tensor: &Tensor, storage_type: &'static str) -> Result<usize, Flaw> {
        let elements = tensor.numel();
        let number = self.storages.len();
        if tensor.is_contiguous() && elements > 0 {
            let memory = Memory {
                address: tensor.data_ptr() as usize,
                on_gpu: match tensor.device() {
                    Device::Cuda(index) => Some(index),
                    _ => None,
                },
                elements,
                storage_type,
            };
            let number = *self.written.entry(memory).or_insert(number);
            if number < self.storages.len() {
                return Ok(number);
            }
        }
        self.storages.push(tensor.f_detach()?);
        Ok(number)
    }
}

/// Elements to step for each dimension of a contiguous tensor of this size.
fn row_major_strides(size: &[i64]) -> Vec<i64> {
    let mut strides = vec![1; size.len()];
    for axis in (1..size.len()).rev() {
        strides[axis - 1] = strides[axis] * size[axis].max(1);
    }
    strides
}
