//! Taking a dict apart by name, with errors that say which key is missing or of the wrong type.

use super::error::Flaw;
use super::object::{Dict, Object};
use super::value::key_name;
use crate::settings::Value;
use indexmap::IndexMap;

pub(super) struct Fields(Dict);

impl Fields {
    pub fn of(object: Object) -> Result<Fields, Flaw> {
        match object {
            Object::Dict(dict) => Ok(Fields(dict)),
            other => Err(expected("a dict", &other)),
        }
    }

    pub fn take(&mut self, name: &str) -> Option<Object> {
        self.0.take(name)
    }

    fn required(&mut self, name: &str) -> Result<Object, Flaw> {
        self.take(name).ok_or_else(|| Flaw::at(name, "is missing"))
    }

    /// `None` if the key is absent or None.
    pub fn optional<T>(
        &mut self,
        name: &str,
        read: impl FnOnce(&mut Fields, &str) -> Result<T, Flaw>,
    ) -> Result<Option<T>, Flaw> {
        match self.0.get(name) {
            None | Some(Object::None) => Ok(None),
            Some(_) => read(self, name).map(Some),
        }
    }

    /// An entry that has a reader of its own.
    pub fn nested<T>(&mut self, name: &str, read: impl FnOnce(Object) -> Result<T, Flaw>) -> Result<T, Flaw> {
        read(self.required(name)?).map_err(|flaw| flaw.under(name))
    }

    pub fn value(&mut self, name: &str) -> Result<Value, Flaw> {
        self.nested(name, Object::into_value)
    }

    pub fn count(&mut self, name: &str) -> Result<u64, Flaw> {
        self.nested(name, |object| {
            object.as_u64().ok_or_else(|| expected("a non-negative int", &object))
        })
    }

    pub fn text(&mut self, name: &str) -> Result<String, Flaw> {
        self.nested(name, |object| match object {
            Object::String(text) => Ok(text),
            other => Err(expected("a string", &other)),
        })
    }

    /// What has not been taken.
    pub fn rest(self) -> Result<IndexMap<String, Object>, Flaw> {
        let entries = self.0.entries.into_iter().map(|(key, value)| match key {
            Object::String(name) => Ok((name, value)),
            other => Err(Flaw::at(key_name(&other), "keys should be strings")),
        });
        entries.collect()
    }
}

pub(super) fn expected(what: &str, found: &Object) -> Flaw {
    let value = match found {
        Object::Int(value) => format!(" ({value})"),
        Object::Float(value) => format!(" ({value})"),
        _ => String::new(),
    };
    Flaw::new(format!("is {}{value}, should be {what}", found.type_name()))
}
