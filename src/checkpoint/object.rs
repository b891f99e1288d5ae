//! The data a checkpoint can hold: what Python calls None, bool, int, float, str, bytes, list, tuple, dict, and tensors.

use tch::Tensor;

#[derive(Debug)]
pub enum Object {
    None,
    Bool(bool),
    /// Wide enough for every signed and unsigned 64-bit number.
    Int(i128),
    Float(f64),
    String(String),
    Bytes(Vec<u8>),
    List(Vec<Object>),
    Tuple(Vec<Object>),
    Dict(Dict),
    Tensor(Tensor),
}

/// A `dict`, or an `OrderedDict` with the attributes that were set on it.
#[derive(Debug, Default)]
pub struct Dict {
    /// In insertion order. Should a key stand twice, the last one counts, as in Python.
    pub entries: Vec<(Object, Object)>,
    /// An `OrderedDict`.
    pub ordered: bool,
    /// Attributes of an `OrderedDict`, such as the `_metadata` of a state dict.
    pub attributes: Vec<(Object, Object)>,
}

impl Dict {
    pub fn get(&self, name: &str) -> Option<&Object> {
        let entry = self.entries.iter().rev().find(|(key, _)| key.as_str() == Some(name));
        entry.map(|(_, value)| value)
    }

    pub fn get_mut(&mut self, name: &str) -> Option<&mut Object> {
        let mut entries = self.entries.iter_mut().rev();
        let entry = entries.find(|(key, _)| key.as_str() == Some(name));
        entry.map(|(_, value)| value)
    }

    /// Takes the entry out, so that its tensors and trees can be moved.
    pub fn take(&mut self, name: &str) -> Option<Object> {
        let position = self.entries.iter().rposition(|(key, _)| key.as_str() == Some(name))?;
        Some(self.entries.remove(position).1)
    }

    /// A copy whose tensors are the same memory.
    pub fn shallow_clone(&self) -> Dict {
        let clones = |entries: &[(Object, Object)]| {
            let pairs = entries
                .iter()
                .map(|(key, value)| (key.shallow_clone(), value.shallow_clone()));
            pairs.collect()
        };
        Dict {
            entries: clones(&self.entries),
            ordered: self.ordered,
            attributes: clones(&self.attributes),
        }
    }

    /// Sets the entry, in its old place if it has one.
    pub fn set(&mut self, name: &str, value: impl Into<Object>) {
        let value = value.into();
        match self
            .entries
            .iter_mut()
            .rev()
            .find(|(key, _)| key.as_str() == Some(name))
        {
            Some(entry) => entry.1 = value,
            None => self.entries.push((name.into(), value)),
        }
    }
}

impl<K: Into<Object>, V: Into<Object>> FromIterator<(K, V)> for Dict {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Self {
        Dict {
            entries: entries
                .into_iter()
                .map(|(key, value)| (key.into(), value.into()))
                .collect(),
            ..Dict::default()
        }
    }
}

impl Object {
    /// A `dict` with these entries.
    pub fn dict<K: Into<Object>, V: Into<Object>>(entries: impl IntoIterator<Item = (K, V)>) -> Object {
        Object::Dict(entries.into_iter().collect())
    }

    pub fn list<V: Into<Object>>(items: impl IntoIterator<Item = V>) -> Object {
        Object::List(items.into_iter().map(Into::into).collect())
    }

    /// The entry `name` of a dict.
    pub fn get(&self, name: &str) -> Option<&Object> {
        self.as_dict()?.get(name)
    }

    pub fn as_dict(&self) -> Option<&Dict> {
        match self {
            Object::Dict(dict) => Some(dict),
            _ => None,
        }
    }

    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Object::Bool(value) => Some(*value),
            _ => None,
        }
    }

    pub fn as_u64(&self) -> Option<u64> {
        match self {
            Object::Int(value) => u64::try_from(*value).ok(),
            _ => None,
        }
    }

    pub fn as_i64(&self) -> Option<i64> {
        match self {
            Object::Int(value) => i64::try_from(*value).ok(),
            _ => None,
        }
    }

    /// A float, or an int as one.
    pub fn as_f64(&self) -> Option<f64> {
        match self {
            Object::Float(value) => Some(*value),
            Object::Int(value) => Some(*value as f64),
            _ => None,
        }
    }

    pub fn as_str(&self) -> Option<&str> {
        match self {
            Object::String(text) => Some(text),
            _ => None,
        }
    }

    /// The items of a list or tuple.
    pub fn as_items(&self) -> Option<&[Object]> {
        match self {
            Object::List(items) | Object::Tuple(items) => Some(items),
            _ => None,
        }
    }

    pub fn as_tensor(&self) -> Option<&Tensor> {
        match self {
            Object::Tensor(tensor) => Some(tensor),
            _ => None,
        }
    }

    /// A copy whose tensors are the same memory.
    pub fn shallow_clone(&self) -> Object {
        let clones = |items: &[Object]| items.iter().map(Object::shallow_clone).collect();
        match self {
            Object::None => Object::None,
            Object::Bool(value) => Object::Bool(*value),
            Object::Int(value) => Object::Int(*value),
            Object::Float(value) => Object::Float(*value),
            Object::String(text) => Object::String(text.clone()),
            Object::Bytes(bytes) => Object::Bytes(bytes.clone()),
            Object::List(items) => Object::List(clones(items)),
            Object::Tuple(items) => Object::Tuple(clones(items)),
            Object::Dict(dict) => Object::Dict(dict.shallow_clone()),
            Object::Tensor(tensor) => Object::Tensor(tensor.shallow_clone()),
        }
    }

    /// For messages: what Python calls it, with an article.
    pub fn type_name(&self) -> &'static str {
        match self {
            Object::None => "None",
            Object::Bool(_) => "a bool",
            Object::Int(_) => "an int",
            Object::Float(_) => "a float",
            Object::String(_) => "a string",
            Object::Bytes(_) => "bytes",
            Object::List(_) => "a list",
            Object::Tuple(_) => "a tuple",
            Object::Dict(_) => "a dict",
            Object::Tensor(_) => "a tensor",
        }
    }
}

macro_rules! object_from {
    ($($source:ty => $variant:ident),* $(,)?) => {
        $(impl From<$source> for Object {
            fn from(value: $source) -> Object {
                Object::$variant(value.into())
            }
        })*
    };
}

object_from! {
    bool => Bool, i32 => Int, i64 => Int, u32 => Int, u64 => Int, f64 => Float, &str => String, String => String,
    Tensor => Tensor, Vec<Object> => List, Dict => Dict,
}

impl From<usize> for Object {
    fn from(value: usize) -> Object {
        Object::Int(value as i128)
    }
}
