//! The part of Python's expressions in which priors are written: calls, numbers with arithmetic, strings, lists.

#[cfg(test)]
mod tests;

/// What an expression stands for.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value {
    None,
    Bool(bool),
    Number(f64),
    Text(String),
    List(Vec<Value>),
    Call(Call),
}

/// `module.path.Class(positional, keyword=value)`.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Call {
    /// Empty if the class is not qualified.
    pub(super) module: String,
    pub(super) class: String,
    pub(super) positional: Vec<Value>,
    pub(super) keywords: Vec<(String, Value)>,
}

impl Value {
    /// What kind of value this is, for messages.
    pub(super) fn describe(&self) -> String {
        match self {
            Value::None => "None".to_string(),
            Value::Bool(true) => "True".to_string(),
            Value::Bool(false) => "False".to_string(),
            Value::Number(number) => number.to_string(),
            Value::Text(text) => format!("'{text}'"),
            Value::List(_) => "a list".to_string(),
            Value::Call(call) => format!("{}(…)", call.class),
        }
    }
}

/// Parses a whole expression. The error says what was expected and at which character.
pub(super) fn parse(expression: &str) -> Result<Value, String> {
    let mut parser = Parser {
        characters: expression.chars().collect(),
        position: 0,
        depth: 0,
    };
    let value = parser.sum()?;
    match parser.peek() {
        None => Ok(value),
        Some(_) => Err(parser.expected("the end of the expression")),
    }
}

/// Parentheses may nest this deep, so that no expression can exhaust the stack.
const MAX_DEPTH: usize = 100;

struct Parser {
    characters: Vec<char>,
    position: usize,
    depth: usize,
}

impl Parser {
    /// The next character that is not white space, which becomes the position.
    fn peek(&mut self) -> Option<char> {
        while self.characters.get(self.position).is_some_and(|c| c.is_whitespace()) {
            self.position += 1;
        }
        self.characters.get(self.position).copied()
    }

    /// Goes past `token` if it comes next.
    fn accept(&mut self, token: &str) -> bool {
        self.peek();
        let matches = self.characters[self.position..]
            .iter()
            .take(token.len())
            .copied()
            .eq(token.chars());
        if matches {
            self.position += token.len();
        }
        matches
    }

    fn expect(&mut self, token: &str) -> Result<(), String> {
        match self.accept(token) {
            true => Ok(()),
            false => Err(self.expected(&format!("'{token}'"))),
        }
    }

    fn expected(&mut self, what: &str) -> String {
        let found = match self.peek() {
            Some(character) => format!("found '{character}'"),
            None => "the expression ends".to_string(),
        };
        format!("expected {what} at character {}, but {found}", self.position + 1)
    }

    /// Sums and differences.
    fn sum(&mut self) -> Result<Value, String> {
        let mut value = self.product()?;
        loop {
            value = if self.accept("+") {
                arithmetic("+", value, self.product()?, |a, b| a + b)?
            } else if self.accept("-") {
                arithmetic("-", value, self.product()?, |a, b| a - b)?
            } else {
                return Ok(value);
            };
        }
    }

    fn product(&mut self) -> Result<Value, String> {
        let mut value = self.signed()?;
        loop {
            value = if self.accept("*") {
                arithmetic("*", value, self.signed()?, |a, b| a * b)?
            } else if self.accept("/") {
                arithmetic("/", value, self.signed()?, |a, b| a / b)?
            } else {
                return Ok(value);
            };
        }
    }

    /// A sign binds weaker than a power: -2**2 is -4.
    fn signed(&mut self) -> Result<Value, String> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err("the expression is nested too deeply".to_string());
        }
        let value = if self.accept("-") {
            arithmetic("-", Value::Number(0.0), self.signed()?, |a, b| a - b)
        } else if self.accept("+") {
            self.signed()
        } else {
            self.power()
        };
        self.depth -= 1;
        value
    }

    fn power(&mut self) -> Result<Value, String> {
        let base = self.atom()?;
        match self.accept("**") {
            true => arithmetic("**", base, self.signed()?, f64::powf),
            false => Ok(base),
        }
    }

    fn atom(&mut self) -> Result<Value, String> {
        match self.peek() {
            Some('(') => {
                self.expect("(")?;
                let value = self.sum()?;
                self.expect(")")?;
                Ok(value)
            }
            Some('[') => self.list(),
            Some(quote @ ('\'' | '"')) => self.text(quote),
            Some(c) if c.is_ascii_digit() || c == '.' => self.number(),
            Some(c) if is_name_start(c) => self.name_or_call(),
            _ => Err(self.expected("a value")),
        }
    }

    fn list(&mut self) -> Result<Value, String> {
        self.expect("[")?;
        let mut values = Vec::new();
        while !self.accept("]") {
            values.push(self.sum()?);
            if !self.accept(",") {
                self.expect("]")?;
                break;
            }
        }
        Ok(Value::List(values))
    }

    /// A string; what a backslash escapes is kept as it stands, since only labels contain any.
    fn text(&mut self, quote: char) -> Result<Value, String> {
        let start = self.position + 1;
        let mut end = start;
        while let Some(&character) = self.characters.get(end) {
            if character == quote {
                self.position = end + 1;
                return Ok(Value::Text(self.characters[start..end].iter().collect()));
            }
            end += if character == '\\' { 2 } else { 1 };
        }
        Err(format!("the string that begins at character {start} does not end"))
    }

    fn number(&mut self) -> Result<Value, String> {
        let start = self.position;
        let mut end = start;
        while let Some(&character) = self.characters.get(end) {
            let exponent_sign = matches!(character, '+' | '-') && matches!(self.characters[end - 1], 'e' | 'E');
            if !(character.is_ascii_alphanumeric() || matches!(character, '.' | '_') || (end > start && exponent_sign))
            {
                break;
            }
            end += 1;
        }
        let text: String = self.characters[start..end].iter().collect();
        self.position = end;
        let number = text
            .replace('_', "")
            .parse()
            .map_err(|_| format!("'{text}' is not a number"))?;
        Ok(Value::Number(number))
    }

    fn name_or_call(&mut self) -> Result<Value, String> {
        let start = self.position;
        let is_part = |c: &char| is_name_start(*c) || c.is_ascii_digit() || *c == '.';
        while self.characters.get(self.position).is_some_and(is_part) {
            self.position += 1;
        }
        let path: String = self.characters[start..self.position].iter().collect();
        if matches!(path.as_str(), "r" | "u") {
            // The prefix of a string: r'$\mathcal{M}$'.
            if let Some(quote @ ('\'' | '"')) = self.characters.get(self.position).copied() {
                return self.text(quote);
            }
        }
        match self.accept("(") {
            true => self.call(&path),
            false => constant(&path),
        }
    }

    /// The arguments of a call, whose parenthesis is already open.
    fn call(&mut self, path: &str) -> Result<Value, String> {
        let (module, class) = path.rsplit_once('.').unwrap_or(("", path));
        let mut call = Call {
            module: module.to_string(),
            class: class.to_string(),
            positional: Vec::new(),
            keywords: Vec::new(),
        };
        while !self.accept(")") {
            match self.keyword() {
                Some(keyword) => {
                    let value = self.sum()?;
                    call.keywords.push((keyword, value));
                }
                None if call.keywords.is_empty() => call.positional.push(self.sum()?),
                None => return Err(self.expected("keyword=value")),
            }
            if !self.accept(",") {
                self.expect(")")?;
                break;
            }
        }
        Ok(Value::Call(call))
    }

    /// Goes past `name =` if that comes next, and gives the name.
    fn keyword(&mut self) -> Option<String> {
        self.peek();
        let start = self.position;
        let is_part = |c: &char| is_name_start(*c) || c.is_ascii_digit();
        while self.characters.get(self.position).is_some_and(is_part) {
            self.position += 1;
        }
        let name: String = self.characters[start..self.position].iter().collect();
        if !name.is_empty() && self.accept("=") {
            return Some(name);
        }
        self.position = start;
        None
    }
}

fn is_name_start(character: char) -> bool {
    character.is_alphabetic() || character == '_'
}

fn arithmetic(operator: &str, left: Value, right: Value, operation: impl Fn(f64, f64) -> f64) -> Result<Value, String> {
    match (&left, &right) {
        (Value::Number(left), Value::Number(right)) => Ok(Value::Number(operation(*left, *right))),
        _ => Err(format!(
            "cannot compute {} {operator} {}",
            left.describe(),
            right.describe()
        )),
    }
}

fn constant(path: &str) -> Result<Value, String> {
    let (module, name) = path.rsplit_once('.').unwrap_or(("", path));
    let number = match (module, name) {
        ("", "None") => return Ok(Value::None),
        ("", "True") => return Ok(Value::Bool(true)),
        ("", "False") => return Ok(Value::Bool(false)),
        ("" | "np" | "numpy" | "math", "pi") => std::f64::consts::PI,
        ("np" | "numpy" | "math", "e") => std::f64::consts::E,
        ("" | "np" | "numpy" | "math", "inf") => f64::INFINITY,
        ("" | "np" | "numpy" | "math", "nan") => f64::NAN,
        _ => {
            return Err(format!(
                "'{path}' is neither a constant (np.pi, np.e, np.inf, None, True, False) nor a call"
            ))
        }
    };
    Ok(Value::Number(number))
}
