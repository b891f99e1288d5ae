//! Text to tree, with the line of every key. The parser is a port of libyaml, which is PyYAML's own: what one of them
//! accepts, the other does.

use super::scalar;
use crate::settings::Value;
use libyaml_safer::{Event, EventData, Mark, Parser, ScalarStyle};
use serde_yaml::Mapping;
use std::collections::HashMap;

/// A file's tree and where its keys stand.
#[derive(Debug)]
pub struct Document {
    pub value: Value,
    lines: HashMap<String, u64>,
}

/// A file that is not YAML, or has a key twice. Lines and columns are counted from 1.
#[derive(Debug, thiserror::Error)]
#[error("line {line}, column {column}: {message}")]
pub struct YamlError {
    pub line: u64,
    pub column: u64,
    pub message: String,
}

/// Aliases let a short text stand for a huge tree, and recursion has a stack to respect; no settings file comes near.
const MAX_NODES: usize = 1_000_000;
const MAX_DEPTH: usize = 100;

/// What the tags of YAML itself begin with, where a file has `!!`.
const YAML_TAG: &str = "tag:yaml.org,2002:";

/// Reads the one document in `text`.
pub fn read(text: &str) -> Result<Document, YamlError> {
    let mut parser = Parser::new();
    parser.set_input(text.as_bytes());
    let mut builder = Builder {
        parser,
        anchors: HashMap::new(),
        lines: HashMap::new(),
        nodes: 0,
    };
    let value = builder.document()?;
    Ok(Document {
        value,
        lines: builder.lines,
    })
}

impl Document {
    /// The line of `key` (dotted), or of the nearest section around it.
    pub fn line(&self, key: &str) -> Option<u64> {
        let mut key = key;
        loop {
            if let Some(&line) = self.lines.get(key) {
                return Some(line);
            }
            key = &key[..key.rfind('.')?];
        }
    }
}

struct Builder<'text> {
    parser: Parser<&'text [u8]>,
    anchors: HashMap<String, Value>,
    lines: HashMap<String, u64>,
    nodes: usize,
}

impl Builder<'_> {
    fn next(&mut self) -> Result<(EventData, Mark), YamlError> {
        let Event { data, start_mark, .. } = self.parser.parse()?;
        Ok((data, start_mark))
    }

    fn document(&mut self) -> Result<Value, YamlError> {
        let mut value = None;
        loop {
            match self.next()? {
                (EventData::StreamEnd, _) => return Ok(value.unwrap_or(Value::Null)),
                (EventData::StreamStart { .. } | EventData::DocumentEnd { .. }, _) => {}
                (EventData::DocumentStart { .. }, mark) if value.is_some() => {
                    return Err(error(mark, "a second document begins here; one is allowed"));
                }
                (EventData::DocumentStart { .. }, _) => {
                    let event = self.next()?;
                    value = Some(self.node(event, "", 0)?);
                }
                (_, mark) => return Err(error(mark, "text outside the document")),
            }
        }
    }

    fn node(&mut self, (event, mark): (EventData, Mark), path: &str, depth: usize) -> Result<Value, YamlError> {
        self.nodes += 1;
        if self.nodes > MAX_NODES || depth > MAX_DEPTH {
            return Err(error(mark, "too large or too deeply nested for a settings file"));
        }
        let (anchor, value) = match event {
            EventData::Scalar {
                anchor,
                tag,
                value,
                style,
                ..
            } => (anchor, scalar_value(&value, style, tag.as_deref(), mark)?),
            EventData::SequenceStart { anchor, tag, .. } => {
                check_tag(tag.as_deref(), "seq", mark)?;
                (anchor, Value::Sequence(self.sequence(path, depth)?))
            }
            EventData::MappingStart { anchor, tag, .. } => {
                check_tag(tag.as_deref(), "map", mark)?;
                (anchor, Value::Mapping(self.mapping(path, depth)?))
            }
            EventData::Alias { anchor } => {
                let value = self.anchors.get(&anchor).cloned();
                let value = value.ok_or_else(|| error(mark, &format!("*{anchor} stands for nothing read before")))?;
                self.nodes += count_nodes(&value);
                return Ok(value);
            }
            _ => return Err(error(mark, "a value should stand here")),
        };
        if let Some(anchor) = anchor {
            self.anchors.insert(anchor, value.clone());
        }
        Ok(value)
    }

    fn sequence(&mut self, path: &str, depth: usize) -> Result<Vec<Value>, YamlError> {
        let mut values = Vec::new();
        loop {
            match self.next()? {
                (EventData::SequenceEnd, _) => return Ok(values),
                event => {
                    let path = format!("{path}[{}]", values.len());
                    values.push(self.node(event, &path, depth + 1)?);
                }
            }
        }
    }

    fn mapping(&mut self, path: &str, depth: usize) -> Result<Mapping, YamlError> {
        let mut mapping = Mapping::new();
        let mut merged = Vec::new();
        loop {
            let (event, mark) = self.next()?;
            if matches!(event, EventData::MappingEnd) {
                break;
            }
            let is_merge = is_merge_key(&event);
            let key = self.node((event, mark), path, depth + 1)?;
            let name = match &key {
                Value::String(name) => name.clone(),
                Value::Sequence(_) | Value::Mapping(_) | Value::Tagged(_) => {
                    return Err(error(mark, "a list or section cannot be a key"));
                }
                other => super::write(other).trim_end().to_string(),
            };
            let path = if path.is_empty() {
                name.clone()
            } else {
                format!("{path}.{name}")
            };
            let value_event = self.next()?;
            let value = self.node(value_event, &path, depth + 1)?;
            if is_merge {
                merged.extend(merge_sources(value, mark)?);
                continue;
            }
            if mapping.contains_key(&key) {
                let first = self
                    .lines
                    .get(&path)
                    .map_or(String::new(), |line| format!(" (first on line {line})"));
                return Err(error(mark, &format!("the key `{path}` stands here twice{first}")));
            }
            self.lines.insert(path, mark.line + 1);
            mapping.insert(key, value);
        }
        if merged.is_empty() {
            return Ok(mapping);
        }
        // A section's own keys win over merged ones, earlier sources over later ones.
        let mut all = Mapping::new();
        for (key, value) in merged.into_iter().flatten() {
            all.entry(key).or_insert(value);
        }
        all.extend(mapping);
        Ok(all)
    }
}

/// `<<` takes a section or a list of them.
fn merge_sources(value: Value, mark: Mark) -> Result<Vec<Mapping>, YamlError> {
    let sources = match value {
        Value::Sequence(values) => values,
        value => vec![value],
    };
    let as_mapping = |source| match source {
        Value::Mapping(mapping) => Ok(mapping),
        _ => Err(error(mark, "`<<` needs a section or a list of sections")),
    };
    sources.into_iter().map(as_mapping).collect()
}

fn is_merge_key(event: &EventData) -> bool {
    matches!(event, EventData::Scalar { value, style: ScalarStyle::Plain, tag: None, .. } if value == "<<")
}

fn scalar_value(text: &str, style: ScalarStyle, tag: Option<&str>, mark: Mark) -> Result<Value, YamlError> {
    let resolved = scalar::resolve(text);
    let Some(tag) = tag else {
        return Ok(if style == ScalarStyle::Plain {
            resolved
        } else {
            Value::from(text)
        });
    };
    let fits = match tag.strip_prefix(YAML_TAG) {
        Some("str") => return Ok(Value::from(text)),
        Some("int") => resolved.is_i64() || resolved.is_u64(),
        Some("float") if resolved.is_number() => return Ok(Value::from(resolved.as_f64().unwrap_or(f64::NAN))),
        Some("bool") => resolved.is_bool(),
        Some("null") => resolved.is_null(),
        _ => return Err(error(mark, &format!("the tag {tag} is not allowed"))),
    };
    if !fits {
        return Err(error(mark, &format!("'{text}' is not what its tag {tag} says")));
    }
    Ok(resolved)
}

fn check_tag(tag: Option<&str>, allowed: &str, mark: Mark) -> Result<(), YamlError> {
    match tag {
        Some(tag) if tag.strip_prefix(YAML_TAG) != Some(allowed) => {
            Err(error(mark, &format!("the tag {tag} is not allowed")))
        }
        _ => Ok(()),
    }
}

fn count_nodes(value: &Value) -> usize {
    match value {
        Value::Sequence(values) => 1 + values.iter().map(count_nodes).sum::<usize>(),
        Value::Mapping(mapping) => 1 + mapping.values().map(count_nodes).sum::<usize>(),
        _ => 1,
    }
}

fn error(mark: Mark, message: &str) -> YamlError {
    YamlError {
        line: mark.line + 1,
        column: mark.column + 1,
        message: message.into(),
    }
}

impl From<libyaml_safer::Error> for YamlError {
    fn from(cause: libyaml_safer::Error) -> Self {
        let mark = cause.problem_mark().or(cause.context_mark()).unwrap_or_default();
        let context = cause.context().map_or(String::new(), |context| format!("{context}, "));
        error(mark, &format!("not YAML: {context}{}", cause.problem()))
    }
}
