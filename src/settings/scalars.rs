//! What single values mean where a number or a flag is meant. The `tidy_` functions also put the number in the place of
//! its text.

use super::yaml::float_text;
use super::Value;

/// A number, also when it arrives as text.
pub fn tidy_number(value: &mut Value) -> Option<f64> {
    if let Value::String(text) = value {
        *value = number_in_text(text)?;
    }
    value.as_f64()
}

/// A whole number, also when it arrives as text or as a float without a fraction.
pub fn tidy_count(value: &mut Value) -> Option<u64> {
    let mut number = value.clone();
    let x = tidy_number(&mut number)?;
    // Beyond 2^53 a float no longer holds every whole number.
    let whole = number
        .as_u64()
        .or((x.fract() == 0.0 && (0.0..9.0e15).contains(&x)).then_some(x as u64))?;
    *value = Value::from(whole);
    Some(whole)
}

/// What Python's `int` or `float` makes of the text, if it is a finite number.
fn number_in_text(text: &str) -> Option<Value> {
    let text = text.trim();
    if let Ok(integer) = text.parse::<i64>() {
        return Some(Value::from(integer));
    }
    let numeric = text.bytes().all(|b| b.is_ascii_digit() || b"+-.eE".contains(&b));
    numeric
        .then(|| text.parse::<f64>().ok())?
        .filter(|x| x.is_finite())
        .map(Value::from)
}

/// True or false, also as quoted text.
pub fn as_flag(value: &Value) -> Option<bool> {
    match value {
        Value::Bool(flag) => Some(*flag),
        Value::String(text) => match text.to_lowercase().as_str() {
            "true" => Some(true),
            "false" => Some(false),
            _ => None,
        },
        _ => None,
    }
}

/// A number as text, as Python prints it.
pub fn number_text(value: &Value) -> Option<String> {
    match value {
        Value::Number(number) if number.is_f64() => number.as_f64().map(float_text),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}
