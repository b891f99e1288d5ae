//! Text to tree, with the line of every key.

use super::scalar;
use crate::settings::Value;
use saphyr_parser::{Event, Marker, Parser, ScalarStyle, ScanError, Span, StrInput, Tag};
use serde_yaml::Mapping;
use std::collections::HashMap;

/// A file's tree and where its keys stand.
#[derive(Debug)]
pub struct Document {
    pub value: Value,
    lines: HashMap<String, usize>,
}

/// A file that is not YAML, or has a key twice.
#[derive(Debug, thiserror::Error)]
#[error("line {line}, column {column}: {message}")]
pub struct YamlError {
    pub line: usize,
    pub column: usize,
    pub message: String,
}

/// Aliases let a short text stand for a huge tree, and recursion has a stack to respect; no settings file comes near.
const MAX_NODES: usize = 1_000_000;
const MAX_DEPTH: usize = 100;

/// Reads the one document in `text`.
pub fn read(text: &str) -> Result<Document, YamlError> {
    let mut builder = Builder {
        parser: Parser::new_from_str(text),
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
    pub fn line(&self, key: &str) -> Option<usize> {
        let mut key = key;
        loop {
            if let Some(&line) = self.lines.get(key) {
                return Some(line);
            }
            key = &key[..key.rfind('.')?];
        }
    }
}

struct Builder<'input> {
    parser: Parser<'input, StrInput<'input>>,
    anchors: HashMap<usize, Value>,
    lines: HashMap<String, usize>,
    nodes: usize,
}

impl<'input> Builder<'input> {
    fn next(&mut self) -> Result<(Event<'input>, Span), YamlError> {
        match self.parser.next_event() {
            Some(event) => event.map_err(YamlError::from),
            None => Ok((Event::StreamEnd, Span::empty(Marker::new(0, 1, 0)))),
        }
    }

    fn document(&mut self) -> Result<Value, YamlError> {
        let mut value = None;
        loop {
            match self.next()? {
                (Event::StreamEnd, _) => return Ok(value.unwrap_or(Value::Null)),
                (Event::StreamStart | Event::DocumentEnd | Event::Nothing, _) => {}
                (Event::DocumentStart(_), span) if value.is_some() => {
                    return Err(error(span, "a second document begins here; one is allowed"));
                }
                (Event::DocumentStart(_), _) => {
                    let event = self.next()?;
                    value = Some(self.node(event, "", 0)?);
                }
                (_, span) => return Err(error(span, "text outside the document")),
            }
        }
    }

    fn node(&mut self, (event, span): (Event<'input>, Span), path: &str, depth: usize) -> Result<Value, YamlError> {
        self.nodes += 1;
        if self.nodes > MAX_NODES || depth > MAX_DEPTH {
            return Err(error(span, "too large or too deeply nested for a settings file"));
        }
        let (anchor, value) = match event {
            Event::Scalar(text, style, anchor, tag) => (anchor, scalar_value(&text, style, tag.as_deref(), span)?),
            Event::SequenceStart(anchor, tag) => {
                check_tag(tag.as_deref(), "seq", span)?;
                (anchor, Value::Sequence(self.sequence(path, depth)?))
            }
            Event::MappingStart(anchor, tag) => {
                check_tag(tag.as_deref(), "map", span)?;
                (anchor, Value::Mapping(self.mapping(path, depth)?))
            }
            Event::Alias(anchor) => {
                let value = self.anchors.get(&anchor).cloned();
                let value = value.ok_or_else(|| error(span, "an alias inside of what it stands for"))?;
                self.nodes += count_nodes(&value);
                return Ok(value);
            }
            _ => return Err(error(span, "a value should stand here")),
        };
        if anchor > 0 {
            self.anchors.insert(anchor, value.clone());
        }
        Ok(value)
    }

    fn sequence(&mut self, path: &str, depth: usize) -> Result<Vec<Value>, YamlError> {
        let mut values = Vec::new();
        loop {
            match self.next()? {
                (Event::SequenceEnd, _) => return Ok(values),
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
            let (event, span) = self.next()?;
            if matches!(event, Event::MappingEnd) {
                break;
            }
            let is_merge = matches!(&event, Event::Scalar(text, ScalarStyle::Plain, ..) if text == "<<");
            let key = self.node((event, span), path, depth + 1)?;
            let name = match &key {
                Value::String(name) => name.clone(),
                Value::Sequence(_) | Value::Mapping(_) | Value::Tagged(_) => {
                    return Err(error(span, "a list or section cannot be a key"));
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
                merged.extend(merge_sources(value, span)?);
                continue;
            }
            if mapping.contains_key(&key) {
                let first = self
                    .lines
                    .get(&path)
                    .map_or(String::new(), |line| format!(" (first on line {line})"));
                return Err(error(span, &format!("the key `{path}` stands here twice{first}")));
            }
            self.lines.insert(path, span.start.line());
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
fn merge_sources(value: Value, span: Span) -> Result<Vec<Mapping>, YamlError> {
    let sources = match value {
        Value::Sequence(values) => values,
        value => vec![value],
    };
    let as_mapping = |source| match source {
        Value::Mapping(mapping) => Ok(mapping),
        _ => Err(error(span, "`<<` needs a section or a list of sections")),
    };
    sources.into_iter().map(as_mapping).collect()
}

fn scalar_value(text: &str, style: ScalarStyle, tag: Option<&Tag>, span: Span) -> Result<Value, YamlError> {
    let resolved = scalar::resolve(text);
    let Some(tag) = tag else {
        return Ok(if style == ScalarStyle::Plain {
            resolved
        } else {
            Value::from(text)
        });
    };
    let fits = match (tag.is_yaml_core_schema(), tag.suffix.as_str()) {
        (true, "str") => return Ok(Value::from(text)),
        (true, "int") => resolved.is_i64() || resolved.is_u64(),
        (true, "float") if resolved.is_number() => return Ok(Value::from(resolved.as_f64().unwrap_or(f64::NAN))),
        (true, "bool") => resolved.is_bool(),
        (true, "null") => resolved.is_null(),
        _ => {
            return Err(error(
                span,
                &format!("the tag {}{} is not allowed", tag.handle, tag.suffix),
            ))
        }
    };
    if !fits {
        return Err(error(
            span,
            &format!("`{text}` is not of its tag's type {}", tag.suffix),
        ));
    }
    Ok(resolved)
}

fn check_tag(tag: Option<&Tag>, allowed: &str, span: Span) -> Result<(), YamlError> {
    match tag {
        Some(tag) if !(tag.is_yaml_core_schema() && tag.suffix == allowed) => Err(error(
            span,
            &format!("the tag {}{} is not allowed", tag.handle, tag.suffix),
        )),
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

fn error(span: Span, message: &str) -> YamlError {
    YamlError {
        line: span.start.line(),
        column: span.start.col() + 1,
        message: message.into(),
    }
}

impl From<ScanError> for YamlError {
    fn from(error: ScanError) -> Self {
        YamlError {
            line: error.marker().line(),
            column: error.marker().col() + 1,
            message: format!("not YAML: {}", error.info()),
        }
    }
}
