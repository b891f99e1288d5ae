//! Plain data as JSON text, the way Python's `json.dumps` puts it.

use super::error::Flaw;
use super::fields::expected;
use super::object::Object;
use super::value::key_name;
use std::fmt::Write;

/// The JSON text of `object`. Tuples become lists, keys strings; `NaN` and `Infinity` are written as Python writes and reads
/// them.
///
/// # Errors
/// Bytes and tensors have no place in JSON.
pub(super) fn to_json(object: &Object) -> Result<String, Flaw> {
    let mut text = String::new();
    write(object, &mut text)?;
    Ok(text)
}

fn write(object: &Object, text: &mut String) -> Result<(), Flaw> {
    match object {
        Object::None => text.push_str("null"),
        Object::Bool(value) => text.push_str(if *value { "true" } else { "false" }),
        Object::Int(value) => text.push_str(&value.to_string()),
        Object::Float(value) => text.push_str(&number(*value)),
        Object::String(value) => text.push_str(&quoted(value)),
        Object::List(items) | Object::Tuple(items) => {
            text.push('[');
            for (index, item) in items.iter().enumerate() {
                text.push_str(if index > 0 { ", " } else { "" });
                write(item, text).map_err(|flaw| flaw.under(&index.to_string()))?;
            }
            text.push(']');
        }
        Object::Dict(dict) => {
            text.push('{');
            for (index, (key, value)) in dict.entries.iter().enumerate() {
                let name = key_name(key);
                let _ = write!(text, "{}{}: ", if index > 0 { ", " } else { "" }, quoted(&name));
                write(value, text).map_err(|flaw| flaw.under(&name))?;
            }
            text.push('}');
        }
        other => return Err(expected("what JSON can say", other)),
    }
    Ok(())
}

fn number(value: f64) -> String {
    match value {
        _ if value.is_nan() => "NaN".into(),
        f64::INFINITY => "Infinity".into(),
        f64::NEG_INFINITY => "-Infinity".into(),
        // With a point or an exponent, so that it is read back as a float.
        _ => format!("{value:?}"),
    }
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tch::Tensor;

    #[test]
    fn data_is_written_as_python_reads_it() {
        let tree = Object::dict([
            ("float", Object::Float(1.0)),
            ("small", Object::Float(5e-5)),
            ("nan", Object::Float(f64::NAN)),
            ("int", Object::Int(7)),
            ("text", "a \"b\"\n".into()),
            ("tuple", Object::Tuple(vec![Object::None, Object::Bool(true)])),
            ("empty", Object::dict::<&str, Object>([])),
        ]);
        let expected = r#"{"float": 1.0, "small": 5e-5, "nan": NaN, "int": 7, "text": "a \"b\"\n", "tuple": [null, true], "empty": {}}"#;
        assert_eq!(to_json(&tree).unwrap(), expected);
    }

    #[test]
    fn tensors_are_refused_with_their_place() {
        let tree = Object::dict([("a", Object::list([Object::Tensor(Tensor::from(1.0))]))]);
        let message = format!("{:?}", to_json(&tree).unwrap_err());
        assert!(message.contains("a.0") && message.contains("a tensor"), "{message}");
    }
}
