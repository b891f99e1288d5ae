//! One section of a settings tree, read key by key with errors that say what stands there and what is allowed.
//!
//! Reading also tidies: where a number is meant, `'1e-4'` in the tree becomes the number, so that what a checkpoint
//! stores is of the type that Dingo and PyTorch expect there.

use super::keys::{self, Known, Status};
use super::scalars::{as_flag, tidy_count, tidy_number};
use super::yaml::write;
use super::{SettingsError, Value};
use serde_yaml::Mapping;

/// Where a tree comes from: an unknown key is an error in a user's file, and worth a warning in a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    User,
    Checkpoint,
}

pub struct Section<'a> {
    path: String,
    map: &'a mut Mapping,
    origin: Origin,
}

/// A condition on a number and its wording.
pub struct Allowed {
    pub wording: &'static str,
    pub holds: fn(f64) -> bool,
}

pub const ANY_NUMBER: Allowed = Allowed {
    wording: "a number",
    holds: |_| true,
};
pub const POSITIVE: Allowed = Allowed {
    wording: "a number above 0",
    holds: |x| x > 0.0,
};
pub const NOT_NEGATIVE: Allowed = Allowed {
    wording: "a number that is at least 0",
    holds: |x| x >= 0.0,
};
pub const BETWEEN_0_AND_1: Allowed = Allowed {
    wording: "a number between 0 and 1, both excluded",
    holds: |x| x > 0.0 && x < 1.0,
};
pub const BELOW_1: Allowed = Allowed {
    wording: "a number that is at least 0 and less than 1",
    holds: |x| (0.0..1.0).contains(&x),
};
pub const PROBABILITY: Allowed = Allowed {
    wording: "a number from 0 to 1",
    holds: |x| (0.0..=1.0).contains(&x),
};

/// A value as it is shown in a message.
pub fn shown(value: &Value) -> String {
    let text = match value {
        Value::String(text) => format!("'{text}'"),
        Value::Sequence(values) if values.is_empty() => "an empty list".into(),
        Value::Sequence(values) => format!("[{}]", values.iter().map(shown).collect::<Vec<_>>().join(", ")),
        Value::Mapping(_) => "a section".into(),
        other => write(other).trim_end().into(),
    };
    match text.char_indices().nth(80) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text,
    }
}

/// Of `candidates`, the one closest to `name` in spelling.
pub fn nearest<'c>(name: &str, candidates: impl IntoIterator<Item = &'c str>) -> Option<&'c str> {
    let similarity = |candidate: &str| strsim::jaro_winkler(&name.to_lowercase(), &candidate.to_lowercase());
    candidates
        .into_iter()
        .max_by(|a, b| similarity(a).total_cmp(&similarity(b)))
}

impl<'a> Section<'a> {
    pub fn new(path: &str, value: &'a mut Value, origin: Origin) -> Result<Self, SettingsError> {
        match value {
            Value::Mapping(map) => Ok(Section {
                path: path.into(),
                map,
                origin,
            }),
            other => Err(SettingsError::key(
                path,
                format!("found {}, but this must be a section of keys", shown(other)),
            )),
        }
    }

    pub fn path(&self, key: &str) -> String {
        if self.path.is_empty() {
            key.into()
        } else {
            format!("{}.{key}", self.path)
        }
    }

    pub fn get(&self, key: &str) -> Option<&Value> {
        self.map.get(key)
    }

    /// The keys as text; any other kind of key is an error.
    pub fn key_names(&self) -> Result<Vec<String>, SettingsError> {
        let name = |key: &Value| match key {
            Value::String(name) => Ok(name.clone()),
            other => Err(SettingsError::key(
                self.path(&shown(other)),
                "found a key that is not text",
            )),
        };
        self.map.keys().map(name).collect()
    }

    /// Holds every key against the list of known ones; see [`Status`] for what becomes of them.
    pub fn check_keys(&self, known: &[Known]) -> Result<(), SettingsError> {
        for name in self.key_names()? {
            let value = &self.map[name.as_str()];
            let path = self.path(&name);
            match known.iter().find(|known| known.name == name).map(|known| &known.status) {
                Some(Status::Read) => {}
                Some(Status::NotNeeded(why)) => {
                    if !matches!(value, Value::Null | Value::Bool(false)) {
                        log::info!("{path} is not needed here: {why}");
                    }
                }
                Some(Status::NotYet { unless, what }) => {
                    if shown(value) != *unless {
                        let found = shown(value);
                        return Err(SettingsError::key(
                            path,
                            format!("found {found}: not supported yet ({what})"),
                        ));
                    }
                }
                None if self.origin == Origin::Checkpoint => {
                    log::warn!("{path} in the checkpoint's settings is unknown and has no effect");
                }
                None => return Err(SettingsError::key(path, keys::unknown(&name, known))),
            }
        }
        Ok(())
    }

    fn missing(&self, key: &str, what: &str) -> SettingsError {
        SettingsError::key(self.path(key), format!("missing; this must be {what}"))
    }

    pub fn wrong(&self, key: &str, allowed: &str) -> SettingsError {
        let found = self.map.get(key).map_or("nothing".into(), shown);
        SettingsError::key(self.path(key), format!("found {found}, but this must be {allowed}"))
    }

    fn is_absent(&self, key: &str) -> bool {
        self.map.get(key).is_none_or(Value::is_null)
    }

    // Each value comes in up to three forms: required; `optional_`, None when absent or null; `_or` a default.

    pub fn child(&mut self, key: &str) -> Result<Section<'_>, SettingsError> {
        if !self.map.contains_key(key) {
            return Err(self.missing(key, "a section"));
        }
        let path = self.path(key);
        Section::new(&path, &mut self.map[key], self.origin)
    }

    pub fn optional_child(&mut self, key: &str) -> Result<Option<Section<'_>>, SettingsError> {
        if self.is_absent(key) {
            return Ok(None);
        }
        self.child(key).map(Some)
    }

    pub fn number(&mut self, key: &str, allowed: &Allowed) -> Result<f64, SettingsError> {
        let Some(value) = self.map.get_mut(key) else {
            return Err(self.missing(key, allowed.wording));
        };
        match tidy_number(value) {
            Some(x) if x.is_finite() && (allowed.holds)(x) => Ok(x),
            _ => Err(self.wrong(key, allowed.wording)),
        }
    }

    pub fn optional_number(&mut self, key: &str, allowed: &Allowed) -> Result<Option<f64>, SettingsError> {
        if self.is_absent(key) {
            return Ok(None);
        }
        self.number(key, allowed).map(Some)
    }

    pub fn number_or(&mut self, key: &str, default: f64, allowed: &Allowed) -> Result<f64, SettingsError> {
        if !self.map.contains_key(key) {
            return Ok(default);
        }
        self.number(key, allowed)
    }

    /// A whole number that is at least `minimum`.
    pub fn count(&mut self, key: &str, minimum: u64) -> Result<u64, SettingsError> {
        let allowed = format!("a whole number that is at least {minimum}");
        let Some(value) = self.map.get_mut(key) else {
            return Err(self.missing(key, &allowed));
        };
        match tidy_count(value) {
            Some(n) if n >= minimum => Ok(n),
            _ => Err(self.wrong(key, &allowed)),
        }
    }

    pub fn optional_count(&mut self, key: &str, minimum: u64) -> Result<Option<u64>, SettingsError> {
        if self.is_absent(key) {
            return Ok(None);
        }
        self.count(key, minimum).map(Some)
    }

    pub fn count_or(&mut self, key: &str, default: u64, minimum: u64) -> Result<u64, SettingsError> {
        if !self.map.contains_key(key) {
            return Ok(default);
        }
        self.count(key, minimum)
    }

    /// [`Section::count`] for what indexes memory.
    pub fn size(&mut self, key: &str, minimum: u64) -> Result<usize, SettingsError> {
        let n = self.count(key, minimum)?;
        usize::try_from(n).map_err(|_| self.wrong(key, "a whole number that fits into memory"))
    }

    pub fn optional_size(&mut self, key: &str, minimum: u64) -> Result<Option<usize>, SettingsError> {
        if self.is_absent(key) {
            return Ok(None);
        }
        self.size(key, minimum).map(Some)
    }

    pub fn size_list(&mut self, key: &str) -> Result<Vec<usize>, SettingsError> {
        let allowed = "a list of whole numbers above 0, not empty";
        let Some(value) = self.map.get_mut(key) else {
            return Err(self.missing(key, allowed));
        };
        let tidied = match value {
            Value::Sequence(values) if !values.is_empty() => values
                .iter_mut()
                .map(|value| {
                    tidy_count(value)
                        .filter(|&n| n > 0)
                        .and_then(|n| usize::try_from(n).ok())
                })
                .collect(),
            _ => None,
        };
        tidied.ok_or_else(|| self.wrong(key, allowed))
    }

    /// Two numbers, such as Adam's betas.
    pub fn pair_or(&mut self, key: &str, default: (f64, f64), allowed: &Allowed) -> Result<(f64, f64), SettingsError> {
        let Some(value) = self.map.get_mut(key) else {
            return Ok(default);
        };
        let mut pair = None;
        if let Value::Sequence(values) = value {
            if let [first, second] = values.as_mut_slice() {
                pair = tidy_number(first).zip(tidy_number(second));
            }
        }
        match pair {
            Some((first, second)) if (allowed.holds)(first) && (allowed.holds)(second) => Ok((first, second)),
            _ => Err(self.wrong(key, &format!("a list of two numbers, each {}", allowed.wording))),
        }
    }

    pub fn flag_or(&mut self, key: &str, default: bool) -> Result<bool, SettingsError> {
        Ok(self.optional_flag(key)?.unwrap_or(default))
    }

    /// True or false; None only when the key is absent.
    pub fn optional_flag(&mut self, key: &str) -> Result<Option<bool>, SettingsError> {
        let Some(value) = self.map.get_mut(key) else {
            return Ok(None);
        };
        match as_flag(value) {
            Some(flag) => {
                *value = Value::from(flag);
                Ok(Some(flag))
            }
            None => Err(self.wrong(key, "true or false")),
        }
    }

    pub fn text(&mut self, key: &str, what: &str) -> Result<String, SettingsError> {
        match self.map.get(key) {
            None => Err(self.missing(key, what)),
            Some(Value::String(text)) if !text.is_empty() => Ok(text.clone()),
            Some(_) => Err(self.wrong(key, what)),
        }
    }

    pub fn optional_text(&mut self, key: &str, what: &str) -> Result<Option<String>, SettingsError> {
        if self.is_absent(key) {
            return Ok(None);
        }
        self.text(key, what).map(Some)
    }

    /// A list of names without repetition.
    pub fn names(&mut self, key: &str, what: &str) -> Result<Vec<String>, SettingsError> {
        let allowed = format!("a list of {what}");
        let values = match self.map.get(key) {
            None => return Err(self.missing(key, &allowed)),
            Some(Value::Sequence(values)) => values,
            Some(_) => return Err(self.wrong(key, &allowed)),
        };
        let mut names: Vec<String> = Vec::with_capacity(values.len());
        for value in values {
            match value {
                Value::String(name) if names.contains(name) => {
                    return Err(SettingsError::key(
                        self.path(key),
                        format!("'{name}' stands here twice"),
                    ));
                }
                Value::String(name) => names.push(name.clone()),
                _ => return Err(self.wrong(key, &allowed)),
            }
        }
        Ok(names)
    }

    /// One of a few words, in any case; the tree gets the spelling of the list. A word paired with a reason is one that
    /// Dingo knows and we do not support yet.
    pub fn choice<T: Copy>(&mut self, key: &str, choices: &[(&str, Result<T, &str>)]) -> Result<T, SettingsError> {
        let words = || {
            choices
                .iter()
                .filter(|(_, choice)| choice.is_ok())
                .map(|(word, _)| *word)
        };
        let list = words().collect::<Vec<_>>().join(", ");
        let allowed = if list.contains(',') {
            format!("one of {list}")
        } else {
            list
        };
        let found = match self.map.get(key) {
            None => return Err(self.missing(key, &allowed)),
            Some(Value::String(found)) => found.clone(),
            Some(_) => return Err(self.wrong(key, &allowed)),
        };
        match choices.iter().find(|(word, _)| word.eq_ignore_ascii_case(&found)) {
            Some((word, Ok(choice))) => {
                self.map[key] = Value::from(*word);
                Ok(*choice)
            }
            Some((_, Err(why))) => Err(SettingsError::key(
                self.path(key),
                format!("found '{found}': not supported yet ({why}); this must be {allowed}"),
            )),
            None => {
                let nearest = nearest(&found, words()).map_or(String::new(), |word| format!(" (nearest: {word})"));
                Err(self.wrong(key, &(allowed + &nearest)))
            }
        }
    }
}
