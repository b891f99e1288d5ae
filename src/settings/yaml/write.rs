//! Tree to text, in the block style of PyYAML's `dump`, such that PyYAML and [`super::read`] read the same tree back.

use super::scalar::{float_text, resolve};
use crate::settings::Value;
use std::fmt::Write;

/// The YAML text of `value`, ending in a newline.
pub fn write(value: &Value) -> String {
    let mut text = String::new();
    block(value, 0, &mut text);
    text.trim_start_matches(['\n', ' ']).to_string()
}

/// Writes what follows a key's colon or a list's dash, up to and including the end of the line.
fn block(value: &Value, indent: usize, text: &mut String) {
    match value {
        Value::Mapping(mapping) if !mapping.is_empty() => {
            text.push('\n');
            for (key, value) in mapping {
                let _ = write!(text, "{:indent$}{}:", "", scalar_text(key));
                // PyYAML lets a list under a key start in the key's own column.
                block(value, if value.is_sequence() { indent } else { indent + 2 }, text);
            }
        }
        Value::Sequence(values) if !values.is_empty() => {
            text.push('\n');
            for value in values {
                let _ = write!(text, "{:indent$}-", "");
                let mut item = String::new();
                block(value, indent + 2, &mut item);
                // A section in a list starts on the dash's line.
                match item.strip_prefix('\n') {
                    Some(nested) => text.push_str(&format!(" {}", nested.trim_start_matches(' '))),
                    None => text.push_str(&item),
                }
            }
        }
        Value::Tagged(tagged) => block(&tagged.value, indent, text),
        scalar => {
            let _ = writeln!(text, " {}", scalar_text(scalar));
        }
    }
}

fn scalar_text(value: &Value) -> String {
    match value {
        Value::Null => "null".into(),
        Value::Bool(value) => value.to_string(),
        Value::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(integer), _) => integer.to_string(),
            (_, Some(integer)) => integer.to_string(),
            _ => float_text(number.as_f64().unwrap_or(f64::NAN)),
        },
        Value::String(text) => quoted_where_needed(text),
        Value::Sequence(_) => "[]".into(),
        Value::Mapping(_) => "{}".into(),
        Value::Tagged(tagged) => scalar_text(&tagged.value),
    }
}

/// Plain where it reads back as the same text, in quotes otherwise.
fn quoted_where_needed(text: &str) -> String {
    if text
        .chars()
        .any(|c| c.is_control() || matches!(c, '\u{85}' | '\u{2028}' | '\u{2029}' | '\u{feff}'))
    {
        return double_quoted(text);
    }
    let plain = resolve(text).is_string()
        && text.trim() == text
        && !text.starts_with(|c| "-?:,[]{}#&*!|>'\"%@`=<.0123456789+".contains(c))
        && !text.contains(": ")
        && !text.ends_with(':')
        && !text.contains(" #");
    if plain {
        text.into()
    } else {
        format!("'{}'", text.replace('\'', "''"))
    }
}

fn double_quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            '\n' => quoted.push_str("\\n"),
            '\t' => quoted.push_str("\\t"),
            c if c.is_control() || (c as u32) > 0x7e => {
                let _ = write!(quoted, "\\U{:08x}", c as u32);
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}
