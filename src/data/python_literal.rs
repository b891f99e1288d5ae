//! The `repr` of Python data, as Dingo stores it in the `settings` attribute of its HDF5 files.
//!
//! Dingo writes `str(settings)` and reads it with `ast.literal_eval`. Here it becomes a [`Value`]: dictionaries keep their
//! order, tuples become sequences. Two things that `literal_eval` refuses are read too, because `repr` writes them for
//! NumPy values: bare `inf` and `nan`, and calls such as `np.float64(1.0)` or `array([1.0, 2.0])`, which stand for their
//! first argument.

use crate::settings::Value;
use serde_yaml::Mapping;

/// Deeper nesting than any settings have; a limit keeps hostile text from exhausting the stack.
const MAX_DEPTH: usize = 64;

/// Text that is not a Python literal: what was wrong, and where.
#[derive(Debug, thiserror::Error, PartialEq)]
#[error("{message} at character {position}")]
pub struct LiteralError {
    pub message: String,
    /// Counted in characters from 0.
    pub position: usize,
}

/// Reads one literal; nothing but white space may follow it.
pub fn parse(text: &str) -> Result<Value, LiteralError> {
    let mut parser = Parser {
        characters: text.chars().collect(),
        position: 0,
        depth: 0,
    };
    let value = parser.value()?;
    match parser.peek() {
        None => Ok(value),
        Some(other) => parser.fail(format!("unexpected '{other}' after the value")),
    }
}

struct Parser {
    characters: Vec<char>,
    position: usize,
    depth: usize,
}

impl Parser {
    fn fail<T>(&self, message: impl Into<String>) -> Result<T, LiteralError> {
        Err(LiteralError {
            message: message.into(),
            position: self.position,
        })
    }

    /// The next character that is not white space, left in place.
    fn peek(&mut self) -> Option<char> {
        while self.characters.get(self.position).is_some_and(|c| c.is_whitespace()) {
            self.position += 1;
        }
        self.characters.get(self.position).copied()
    }

    /// Takes `wanted` if it is what follows.
    fn take(&mut self, wanted: char) -> bool {
        let found = self.peek() == Some(wanted);
        self.position += usize::from(found);
        found
    }

    fn expect(&mut self, wanted: char) -> Result<(), LiteralError> {
        if self.take(wanted) {
            return Ok(());
        }
        match self.peek() {
            Some(other) => self.fail(format!("expected '{wanted}', found '{other}'")),
            None => self.fail(format!("expected '{wanted}', found the end of the text")),
        }
    }

    fn value(&mut self) -> Result<Value, LiteralError> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return self.fail(format!("nested more than {MAX_DEPTH} deep"));
        }
        let value = match self.peek() {
            None => return self.fail("expected a value, found the end of the text"),
            Some('{') => self.dictionary()?,
            Some('[') => Value::Sequence(self.items('[', ']')?.0),
            Some('(') => self.parenthesized()?,
            Some('\'' | '"') => Value::String(self.string()?),
            Some('+' | '-' | '.' | '0'..='9') => self.number()?,
            Some(c) if c.is_alphabetic() || c == '_' => self.name()?,
            Some(other) => return self.fail(format!("unexpected '{other}'")),
        };
        self.depth -= 1;
        Ok(value)
    }

    fn dictionary(&mut self) -> Result<Value, LiteralError> {
        let mut mapping = Mapping::new();
        self.expect('{')?;
        while !self.take('}') {
            let key = self.value()?;
            self.expect(':')?;
            let value = self.value()?;
            mapping.insert(key, value);
            if !self.take(',') {
                self.expect('}')?;
                break;
            }
        }
        Ok(Value::Mapping(mapping))
    }

    /// What stands between two brackets, and whether the last item was followed by a comma.
    fn items(&mut self, open: char, close: char) -> Result<(Vec<Value>, bool), LiteralError> {
        let mut items = Vec::new();
        self.expect(open)?;
        loop {
            if self.take(close) {
                return Ok((items, true));
            }
            items.push(self.value()?);
            if !self.take(',') {
                self.expect(close)?;
                return Ok((items, false));
            }
        }
    }

    /// A tuple, or a value in parentheses: `(1)` is 1, `(1,)` a tuple of one.
    fn parenthesized(&mut self) -> Result<Value, LiteralError> {
        let (mut items, comma) = self.items('(', ')')?;
        if items.len() == 1 && !comma {
            return Ok(items.remove(0));
        }
        Ok(Value::Sequence(items))
    }

    fn string(&mut self) -> Result<String, LiteralError> {
        let quote = self.characters[self.position];
        self.position += 1;
        let mut text = String::new();
        loop {
            let Some(&character) = self.characters.get(self.position) else {
                return self.fail("a string without its closing quote");
            };
            self.position += 1;
            match character {
                c if c == quote => return Ok(text),
                '\\' => text.extend(self.escape()?),
                c => text.push(c),
            }
        }
    }

    /// What a backslash and the characters after it stand for; an escaped line end stands for nothing.
    fn escape(&mut self) -> Result<Option<char>, LiteralError> {
        let Some(&kind) = self.characters.get(self.position) else {
            return self.fail("a string that ends in a backslash");
        };
        self.position += 1;
        let character = match kind {
            '\n' => return Ok(None),
            '\\' | '\'' | '"' => kind,
            'n' => '\n',
            't' => '\t',
            'r' => '\r',
            'a' => '\x07',
            'b' => '\x08',
            'f' => '\x0c',
            'v' => '\x0b',
            '0'..='7' => {
                self.position -= 1;
                self.code_point(8, 1, 3)?
            }
            'x' => self.code_point(16, 2, 2)?,
            'u' => self.code_point(16, 4, 4)?,
            'U' => self.code_point(16, 8, 8)?,
            other => return self.fail(format!("unknown escape '\\{other}'")),
        };
        Ok(Some(character))
    }

    /// A character given by `least` to `most` digits of its number.
    fn code_point(&mut self, radix: u32, least: usize, most: usize) -> Result<char, LiteralError> {
        let digits: String = self.characters[self.position..]
            .iter()
            .take(most)
            .take_while(|c| c.is_digit(radix))
            .collect();
        let character = u32::from_str_radix(&digits, radix).ok().and_then(char::from_u32);
        match character {
            Some(character) if digits.len() >= least => {
                self.position += digits.len();
                Ok(character)
            }
            _ => self.fail("an escape that names no character"),
        }
    }

    fn number(&mut self) -> Result<Value, LiteralError> {
        let negative = self.take('-');
        if !negative {
            self.take('+');
        }
        // `-inf`, `-nan`, and `-np.float64(1.0)` once NumPy's types are in play.
        if self.peek().is_some_and(char::is_alphabetic) {
            return match self.name()? {
                Value::Number(n) => Ok(signed(negative, n.as_f64().unwrap_or(f64::NAN))),
                _ => self.fail("a sign before what is not a number"),
            };
        }
        let start = self.position;
        let mut previous = ' ';
        while let Some(&c) = self.characters.get(self.position) {
            let exponent_sign = matches!(c, '+' | '-') && matches!(previous, 'e' | 'E');
            if !(c.is_ascii_digit() || matches!(c, '.' | 'e' | 'E') || exponent_sign) {
                break;
            }
            previous = c;
            self.position += 1;
        }
        let digits: String = self.characters[start..self.position].iter().collect();
        let text = if negative { format!("-{digits}") } else { digits };
        if let Ok(integer) = text.parse::<i64>() {
            return Ok(Value::from(integer));
        }
        if let Ok(integer) = text.parse::<u64>() {
            return Ok(Value::from(integer));
        }
        match text.parse::<f64>() {
            Ok(number) => Ok(Value::from(number)),
            Err(_) => self.fail(format!("'{text}' is not a number")),
        }
    }

    /// A word: a constant, a prefix of a string, or a NumPy constructor.
    fn name(&mut self) -> Result<Value, LiteralError> {
        let start = self.position;
        while self
            .characters
            .get(self.position)
            .is_some_and(|&c| c.is_alphanumeric() || matches!(c, '_' | '.'))
        {
            self.position += 1;
        }
        let name: String = self.characters[start..self.position].iter().collect();
        let short = name
            .strip_prefix("np.")
            .or(name.strip_prefix("numpy."))
            .unwrap_or(&name);
        match short {
            "True" | "True_" => Ok(Value::Bool(true)),
            "False" | "False_" => Ok(Value::Bool(false)),
            "None" => Ok(Value::Null),
            "inf" => Ok(Value::from(f64::INFINITY)),
            "nan" => Ok(Value::from(f64::NAN)),
            "b" | "u" if matches!(self.peek(), Some('\'' | '"')) => Ok(Value::String(self.string()?)),
            _ if (short == "array" || short != name) && self.peek() == Some('(') => self.constructor(),
            _ => {
                self.position = start;
                self.fail(format!("unknown name '{name}'"))
            }
        }
    }

    /// The arguments of a NumPy constructor: the first is the value, keywords such as `dtype=float32` are passed over.
    fn constructor(&mut self) -> Result<Value, LiteralError> {
        self.expect('(')?;
        let value = self.value()?;
        while self.take(',') {
            while self.peek().is_some_and(|c| !matches!(c, ',' | ')')) {
                self.position += 1;
            }
        }
        self.expect(')')?;
        Ok(value)
    }
}

fn signed(negative: bool, magnitude: f64) -> Value {
    Value::from(if negative { -magnitude } else { magnitude })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn yaml(text: &str) -> Value {
        serde_yaml::from_str(text).unwrap()
    }

    #[test]
    fn reads_what_dingo_writes() {
        let text = r#"{'domain': {'type': 'UniformFrequencyDomain', 'f_min': 20.0, 'delta_f': 0.25},
            'intrinsic_prior': {'chi_1': "AlignedSpin(name='chi_1', a_prior=Uniform(minimum=0, maximum=0.9))", 'x': 'default'},
            'num_samples': 4096, 'compression': None, 'flag': True, 'other': False, 'nodes': [20.0, 38.0, [1, (2, 3)]]}"#;
        let expected = yaml(
            "domain: {type: UniformFrequencyDomain, f_min: 20.0, delta_f: 0.25}\n\
             intrinsic_prior: {chi_1: \"AlignedSpin(name='chi_1', a_prior=Uniform(minimum=0, maximum=0.9))\", x: default}\n\
             num_samples: 4096\ncompression: null\nflag: true\nother: false\nnodes: [20.0, 38.0, [1, [2, 3]]]",
        );
        assert_eq!(parse(text).unwrap(), expected);
        let order: Vec<_> = parse(text).unwrap().as_mapping().unwrap().keys().cloned().collect();
        assert_eq!(order[0], Value::from("domain"));
        assert_eq!(order[6], Value::from("nodes"));
    }

    #[test]
    fn reads_numbers_as_python_does() {
        for (text, number) in [
            ("1e-05", 1e-5),
            ("-2.5E+3", -2500.0),
            ("+.5", 0.5),
            ("3.", 3.0),
            ("inf", f64::INFINITY),
            ("-inf", f64::NEG_INFINITY),
            ("np.float64(1.5)", 1.5),
            ("-np.float64(1.5)", -1.5),
            ("123456789012345678901234567890", 1.2345678901234568e29),
        ] {
            let value = parse(text).unwrap();
            assert!(value.is_f64(), "{text} is a float");
            assert_eq!(value.as_f64().unwrap(), number, "{text}");
        }
        assert!(parse("nan").unwrap().as_f64().unwrap().is_nan());
        assert_eq!(parse(" -7 ").unwrap(), Value::from(-7));
        assert_eq!(parse("18446744073709551615").unwrap(), Value::from(u64::MAX));
    }

    #[test]
    fn reads_strings_tuples_and_arrays() {
        assert_eq!(
            parse(r#"'it\'s \x41\u00e9\n\\ "q"'"#).unwrap(),
            Value::from("it's Aé\n\\ \"q\"")
        );
        assert_eq!(parse(r#""a'b""#).unwrap(), Value::from("a'b"));
        assert_eq!(parse("()").unwrap(), yaml("[]"));
        assert_eq!(parse("(1,)").unwrap(), yaml("[1]"));
        assert_eq!(parse("(1)").unwrap(), yaml("1"));
        assert_eq!(parse("[1, 2, ]").unwrap(), yaml("[1, 2]"));
        assert_eq!(parse("array([1., 2.], dtype=float32)").unwrap(), yaml("[1.0, 2.0]"));
        assert_eq!(parse("np.str_('a')").unwrap(), Value::from("a"));
        assert_eq!(parse("{1: 'a', }").unwrap(), yaml("1: a"));
    }

    #[test]
    fn refuses_what_is_no_literal() {
        for text in [
            "",
            "{",
            "{'a'}",
            "{'a': }",
            "{'a': 1",
            "[1 2]",
            "'open",
            "'\\",
            "'\\x4'",
            "'\\ud800'",
            "1 2",
            "--1",
            "1.2.3",
            "1j",
            "open('file')",
            "__import__('os')",
            "True.x",
            "-'a'",
            "{'a': 1}}",
            "(",
            "array(",
            "é",
            "'\\777777'x",
        ] {
            assert!(parse(text).is_err(), "{text:?} was read as {:?}", parse(text));
        }
        assert!(parse(&"[".repeat(100_000)).unwrap_err().message.contains("deep"));
        let error = parse("{'a': oops}").unwrap_err();
        assert_eq!(error.to_string(), "unknown name 'oops' at character 6");
    }
}
