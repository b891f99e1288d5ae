//! Reading the plain values of a saved state (optimizer options, scheduler, early stopping), with errors that name the
//! key.

use super::TrainError;
use crate::settings::Value;
use indexmap::IndexMap;
use std::collections::HashMap;

/// A dictionary from a checkpoint and where it stands there.
pub(super) struct SavedState<'a> {
    path: String,
    entries: HashMap<&'a str, &'a Value>,
}

impl<'a> SavedState<'a> {
    /// `path` is the dictionary's dotted path in the checkpoint, for messages.
    pub fn from_value(path: &str, value: &'a Value) -> Result<SavedState<'a>, TrainError> {
        let Value::Mapping(mapping) = value else {
            return Err(TrainError::state(path, "is not a dictionary"));
        };
        let entries = mapping.iter().filter_map(|(key, value)| Some((key.as_str()?, value)));
        Ok(SavedState {
            path: path.to_owned(),
            entries: entries.collect(),
        })
    }

    pub fn from_options(path: &str, options: &'a IndexMap<String, Value>) -> SavedState<'a> {
        SavedState {
            path: path.to_owned(),
            entries: options.iter().map(|(key, value)| (key.as_str(), value)).collect(),
        }
    }

    /// The value under `key`, `None` when it is absent or Python's None.
    fn find(&self, key: &str) -> Option<&'a Value> {
        self.entries.get(key).copied().filter(|value| !value.is_null())
    }

    fn error(&self, key: &str, message: impl Into<String>) -> TrainError {
        TrainError::state(format!("{}.{key}", self.path), message)
    }

    fn read<T>(
        &self,
        key: &str,
        expected: &str,
        convert: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, TrainError> {
        self.find(key)
            .map(|value| {
                let found = || serde_yaml::to_string(value).unwrap_or_default();
                convert(value)
                    .ok_or_else(|| self.error(key, format!("{} stands where {expected} is needed", found().trim_end())))
            })
            .transpose()
    }

    fn required<T>(&self, key: &str, value: Option<T>) -> Result<T, TrainError> {
        value.ok_or_else(|| self.error(key, "is missing"))
    }

    pub fn optional_float(&self, key: &str) -> Result<Option<f64>, TrainError> {
        self.read(key, "a number", Value::as_f64)
    }

    pub fn float(&self, key: &str) -> Result<f64, TrainError> {
        self.required(key, self.optional_float(key)?)
    }

    pub fn count(&self, key: &str) -> Result<u64, TrainError> {
        self.required(key, self.read(key, "a count", Value::as_u64)?)
    }

    pub fn bool_or(&self, key: &str, default: bool) -> Result<bool, TrainError> {
        Ok(self.read(key, "true or false", Value::as_bool)?.unwrap_or(default))
    }

    pub fn text(&self, key: &str) -> Result<&'a str, TrainError> {
        self.required(key, self.read(key, "a string", Value::as_str)?)
    }

    /// A list of exactly `N` numbers.
    pub fn floats<const N: usize>(&self, key: &str) -> Result<[f64; N], TrainError> {
        let expected = format!("a list of length {N} of numbers");
        let numbers = self.read(key, &expected, |value| {
            let numbers: Option<Vec<f64>> = value.as_sequence()?.iter().map(Value::as_f64).collect();
            numbers?.try_into().ok()
        })?;
        self.required(key, numbers)
    }
}

/// A dictionary in the given order.
pub(super) fn dictionary<'a>(entries: impl IntoIterator<Item = (&'a str, Value)>) -> Value {
    Value::Mapping(entries.into_iter().map(|(key, value)| (key.into(), value)).collect())
}

/// A whole number as Python's int, anything else as float.
pub(super) fn int_if_whole(number: f64) -> Value {
    // Beyond 2^53 a float no longer says which whole number is meant.
    if number.fract() == 0.0 && number.abs() < 9_007_199_254_740_992.0 {
        Value::from(number as i64)
    } else {
        Value::from(number)
    }
}
