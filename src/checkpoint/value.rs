//! Between the objects of a checkpoint and the trees of settings.

use super::error::Flaw;
use super::object::{Dict, Object};
use crate::settings::Value;
use serde_yaml::{Mapping, Number};

impl From<&Value> for Object {
    /// Ints stay ints and floats floats; sequences become lists. YAML tags, which Python data has none of, are dropped.
    fn from(value: &Value) -> Object {
        match value {
            Value::Null => Object::None,
            Value::Bool(value) => Object::Bool(*value),
            Value::Number(number) => object_from_number(number),
            Value::String(text) => Object::String(text.clone()),
            Value::Sequence(items) => Object::list(items),
            Value::Mapping(entries) => Object::Dict(entries.iter().collect::<Dict>()),
            Value::Tagged(tagged) => Object::from(&tagged.value),
        }
    }
}

impl From<Value> for Object {
    fn from(value: Value) -> Object {
        Object::from(&value)
    }
}

fn object_from_number(number: &Number) -> Object {
    match (number.as_i64(), number.as_u64()) {
        (Some(value), _) => Object::Int(value.into()),
        (None, Some(value)) => Object::Int(value.into()),
        // Neither is a float, infinite and NaN included.
        (None, None) => Object::Float(number.as_f64().unwrap_or(f64::NAN)),
    }
}

impl Object {
    /// As a settings tree, `None` where it holds what has no place in one.
    pub fn to_value(&self) -> Option<Value> {
        self.shallow_clone().into_value().ok()
    }

    /// As a settings tree; tuples become sequences. Bytes, tensors and ints beyond 64 bits have no place in one.
    pub(super) fn into_value(self) -> Result<Value, Flaw> {
        Ok(match self {
            Object::None => Value::Null,
            Object::Bool(value) => Value::Bool(value),
            Object::Int(value) => Value::Number(number_from_int(value)?),
            Object::Float(value) => Value::Number(value.into()),
            Object::String(text) => Value::String(text),
            Object::List(items) | Object::Tuple(items) => {
                let values = items
                    .into_iter()
                    .enumerate()
                    .map(|(index, item)| item.into_value().map_err(|flaw| flaw.under(&index.to_string())));
                Value::Sequence(values.collect::<Result<_, _>>()?)
            }
            Object::Dict(dict) => Value::Mapping(dict.into_mapping()?),
            Object::Bytes(_) | Object::Tensor(_) => {
                return Err(Flaw::new(format!(
                    "is {}; only None, bool, int, float, str, list, tuple and dict may stand here",
                    self.type_name()
                )));
            }
        })
    }
}

impl Dict {
    fn into_mapping(self) -> Result<Mapping, Flaw> {
        let mut mapping = Mapping::with_capacity(self.entries.len());
        for (key, value) in self.entries {
            let name = key_name(&key);
            let under = |flaw: Flaw| flaw.under(&name);
            mapping.insert(key.into_value().map_err(under)?, value.into_value().map_err(under)?);
        }
        Ok(mapping)
    }
}

/// A dictionary's key as it stands in messages.
pub(super) fn key_name(key: &Object) -> String {
    match key {
        Object::String(text) => text.clone(),
        Object::Int(value) => value.to_string(),
        other => format!("({} as key)", other.type_name()),
    }
}

fn number_from_int(value: i128) -> Result<Number, Flaw> {
    if let Ok(signed) = i64::try_from(value) {
        return Ok(signed.into());
    }
    let unsigned = u64::try_from(value).map_err(|_| Flaw::new(format!("{value} does not fit in 64 bits")))?;
    Ok(unsigned.into())
}
