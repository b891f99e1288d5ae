//! What a plain scalar means in YAML 1.1, after the patterns that PyYAML resolves by.

use crate::settings::Value;

/// The value of an unquoted scalar. Whatever no pattern fits is text; so are dates, which no setting needs.
pub fn resolve(text: &str) -> Value {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Value::Null,
        "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => return Value::Bool(true),
        "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => return Value::Bool(false),
        _ => {}
    }
    integer(text)
        .or_else(|| float(text).map(Value::from))
        .unwrap_or_else(|| Value::from(text))
}

/// A float as Python writes it to YAML: shortest digits that read back the same, always with a point.
pub fn float_text(x: f64) -> String {
    if x.is_nan() {
        return ".nan".into();
    }
    if x.is_infinite() {
        return if x > 0.0 { ".inf" } else { "-.inf" }.into();
    }
    let scientific = format!("{x:e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    // The bounds within which Python's repr does without an exponent.
    if (-4..16).contains(&exponent) {
        let plain = format!("{x}");
        return if plain.contains('.') { plain } else { plain + ".0" };
    }
    let point = if mantissa.contains('.') { "" } else { ".0" };
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}{point}e{sign}{:02}", exponent.abs())
}

fn split_sign(text: &str) -> (bool, &str) {
    match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    }
}

fn consists_of(text: &str, allowed: fn(u8) -> bool) -> bool {
    !text.is_empty() && text.bytes().all(|b| b == b'_' || allowed(b))
}

fn is_decimal(b: u8) -> bool {
    b.is_ascii_digit()
}

/// Digits and underscores that begin with a digit.
fn is_digits(text: &str) -> bool {
    consists_of(text, is_decimal) && text.as_bytes()[0] != b'_'
}

/// Binary `0b`, octal by a leading zero, hexadecimal `0x`, decimal, or sexagesimal `1:30`.
fn integer(text: &str) -> Option<Value> {
    let (negative, digits) = split_sign(text);
    let (radix, body) = if let Some(binary) = digits.strip_prefix("0b") {
        (2, consists_of(binary, |b| matches!(b, b'0' | b'1')).then_some(binary)?)
    } else if let Some(hexadecimal) = digits.strip_prefix("0x") {
        (
            16,
            consists_of(hexadecimal, |b| b.is_ascii_hexdigit()).then_some(hexadecimal)?,
        )
    } else if digits.len() > 1 && digits.starts_with('0') {
        (8, consists_of(digits, |b| matches!(b, b'0'..=b'7')).then_some(digits)?)
    } else if digits.contains(':') && !digits.contains('.') {
        let (first, _) = digits.split_once(':')?;
        return (is_digits(first) && !first.starts_with('0'))
            .then(|| sexagesimal(digits))?
            .map(|value| {
                let magnitude = value as i64;
                Value::from(if negative { -magnitude } else { magnitude })
            });
    } else {
        (10, is_digits(digits).then_some(digits)?)
    };
    let body = body.replace('_', "");
    match i128::from_str_radix(&body, radix) {
        Ok(magnitude) => Some(number(if negative { -magnitude } else { magnitude })),
        // Python's integers have no bound; none this large is a setting, and a float keeps its size.
        Err(_) if radix == 10 => body
            .parse::<f64>()
            .ok()
            .map(|x| Value::from(if negative { -x } else { x })),
        Err(_) => None,
    }
}

fn number(value: i128) -> Value {
    match (i64::try_from(value), u64::try_from(value)) {
        (Ok(value), _) => Value::from(value),
        (_, Ok(value)) => Value::from(value),
        _ => Value::from(value as f64),
    }
}

/// A float needs a point, and a sign in its exponent.
fn float(text: &str) -> Option<f64> {
    let (negative, magnitude) = split_sign(text);
    let signed = |x: f64| if negative { -x } else { x };
    match magnitude {
        ".inf" | ".Inf" | ".INF" => return Some(signed(f64::INFINITY)),
        ".nan" | ".NaN" | ".NAN" if magnitude.len() == text.len() => return Some(f64::NAN),
        _ => {}
    }
    let (whole, rest) = magnitude.split_once('.')?;
    if whole.contains(':') {
        let fraction_fits = rest.is_empty() || consists_of(rest, is_decimal);
        return (fraction_fits && is_digits(whole.split(':').next()?))
            .then(|| sexagesimal(magnitude))?
            .map(signed);
    }
    let (fraction, exponent) = match rest.find(['e', 'E']) {
        Some(at) => (&rest[..at], Some(&rest[at + 1..])),
        None => (rest, None),
    };
    let mantissa_fits = if whole.is_empty() {
        magnitude.len() == text.len() && is_digits(fraction)
    } else {
        is_digits(whole) && (fraction.is_empty() || consists_of(fraction, is_decimal))
    };
    let exponent_fits = exponent
        .is_none_or(|e| e.starts_with(['+', '-']) && e.len() > 1 && e.bytes().skip(1).all(|b| b.is_ascii_digit()));
    (mantissa_fits && exponent_fits).then(|| magnitude.replace('_', "").parse().ok().map(signed))?
}

/// `190:20:30` in base 60; the last part may have a fraction.
fn sexagesimal(text: &str) -> Option<f64> {
    let mut parts = text.split(':');
    let mut value: f64 = parts.next()?.replace('_', "").parse().ok()?;
    for part in parts {
        let whole = part.split('.').next()?;
        let fits = matches!(whole.len(), 1 | 2) && whole.bytes().all(|b| b.is_ascii_digit());
        let part: f64 = part.replace('_', "").parse().ok()?;
        if !fits || part >= 60.0 {
            return None;
        }
        value = value * 60.0 + part;
    }
    Some(value)
}
