//! The arguments of a prior class, matched with the class's parameters and checked.

use super::expression::{Call, Value};

/// Arguments by parameter name. Every getter's error names the argument, its value, and what is allowed.
pub(super) struct Arguments<'a> {
    class: &'a str,
    /// What the settings call the parameter that this is the prior of.
    sampled_parameter: &'a str,
    /// Parameter of the class and value given.
    values: Vec<(&'a str, &'a Value)>,
}

impl<'a> Arguments<'a> {
    /// Matches a call's arguments with the class's parameters, which stand in the order of positional arguments.
    pub(super) fn bind(
        call: &'a Call,
        parameters: &[&'a str],
        sampled_parameter: &'a str,
    ) -> Result<Arguments<'a>, String> {
        let class = call.class.as_str();
        let (given, possible) = (call.positional.len(), parameters.len());
        if given > possible {
            return Err(format!(
                "{class} takes at most {possible} arguments, but {given} are given"
            ));
        }
        let mut values: Vec<(&str, &Value)> = parameters.iter().copied().zip(&call.positional).collect();
        for (keyword, value) in &call.keywords {
            let Some(parameter) = parameters.iter().find(|parameter| **parameter == keyword) else {
                return Err(format!(
                    "{class} has no argument '{keyword}'; it has {}",
                    parameters.join(", ")
                ));
            };
            if values.iter().any(|(known, _)| known == parameter) {
                return Err(format!("{class} is given '{keyword}' twice"));
            }
            values.push((parameter, value));
        }
        let arguments = Arguments {
            class,
            sampled_parameter,
            values,
        };
        arguments.check_labels()?;
        Ok(arguments)
    }

    /// Arguments that describe the prior without changing what is drawn.
    fn check_labels(&self) -> Result<(), String> {
        for name in ["name", "latex_label", "unit"] {
            self.text(name)?;
        }
        match self.text("boundary")? {
            None | Some("periodic" | "reflective") => Ok(()),
            Some(other) => Err(self.invalid("boundary", &format!("'{other}'"), "'periodic', 'reflective' or None")),
        }
    }

    pub(super) fn class(&self) -> &'a str {
        self.class
    }

    pub(super) fn sampled_parameter(&self) -> &'a str {
        self.sampled_parameter
    }

    /// The value given, which is `None` too where the argument is Python's None.
    pub(super) fn get(&self, name: &str) -> Option<&'a Value> {
        let given = self
            .values
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, value)| *value);
        given.filter(|value| **value != Value::None)
    }

    pub(super) fn invalid(&self, name: &str, value: &str, allowed: &str) -> String {
        format!("{} of {} is {value}, but must be {allowed}", name, self.class)
    }

    /// A number which may be infinite, but not NaN; `None` if not given.
    pub(super) fn optional_number(&self, name: &str) -> Result<Option<f64>, String> {
        match self.get(name) {
            None => Ok(None),
            Some(Value::Number(number)) if !number.is_nan() => Ok(Some(*number)),
            Some(other) => Err(self.invalid(name, &other.describe(), "a number")),
        }
    }

    /// A finite number that must be given.
    pub(super) fn number(&self, name: &str) -> Result<f64, String> {
        let number = self.bound(name)?;
        self.require(name, number, number.is_finite(), "finite")
    }

    /// A finite number above 0 that must be given.
    pub(super) fn positive(&self, name: &str) -> Result<f64, String> {
        let number = self.number(name)?;
        self.require(name, number, number > 0.0, "above 0")
    }

    /// A finite number above 0, or the default.
    pub(super) fn positive_or(&self, name: &str, default: f64) -> Result<f64, String> {
        let number = self.number_or(name, default)?;
        self.require(name, number, number > 0.0, "above 0")
    }

    /// A finite number, or the default.
    pub(super) fn number_or(&self, name: &str, default: f64) -> Result<f64, String> {
        let number = self.optional_number(name)?.unwrap_or(default);
        self.require(name, number, number.is_finite(), "finite")
    }

    /// A number that must be given and may be infinite.
    pub(super) fn bound(&self, name: &str) -> Result<f64, String> {
        self.optional_number(name)?
            .ok_or_else(|| format!("{} needs the argument '{name}'", self.class))
    }

    /// `number`, if the condition holds.
    pub(super) fn require(&self, name: &str, number: f64, condition: bool, allowed: &str) -> Result<f64, String> {
        match condition {
            true => Ok(number),
            false => Err(self.invalid(name, &number.to_string(), allowed)),
        }
    }

    /// Finite minimum and maximum in ascending order.
    pub(super) fn range(&self) -> Result<(f64, f64), String> {
        let range = (self.number("minimum")?, self.number("maximum")?);
        self.ordered(range)
    }

    /// As [`Arguments::range`], with defaults.
    pub(super) fn range_or(&self, minimum: f64, maximum: f64) -> Result<(f64, f64), String> {
        let range = (self.number_or("minimum", minimum)?, self.number_or("maximum", maximum)?);
        self.ordered(range)
    }

    /// The range, if its minimum is below its maximum.
    pub(super) fn ordered(&self, (minimum, maximum): (f64, f64)) -> Result<(f64, f64), String> {
        match minimum < maximum {
            true => Ok((minimum, maximum)),
            false => Err(format!(
                "{} needs minimum < maximum, but they are {minimum} and {maximum}",
                self.class
            )),
        }
    }

    pub(super) fn text(&self, name: &str) -> Result<Option<&'a str>, String> {
        match self.get(name) {
            None => Ok(None),
            Some(Value::Text(text)) => Ok(Some(text)),
            Some(other) => Err(self.invalid(name, &other.describe(), "a string or None")),
        }
    }

    pub(super) fn bool_or(&self, name: &str, default: bool) -> Result<bool, String> {
        match self.get(name) {
            None => Ok(default),
            Some(Value::Bool(value)) => Ok(*value),
            Some(other) => Err(self.invalid(name, &other.describe(), "True or False")),
        }
    }

    /// A list of finite numbers that must be given.
    pub(super) fn numbers(&self, name: &str) -> Result<Vec<f64>, String> {
        let fail = |value: &str| self.invalid(name, value, "a list of finite numbers");
        match self.get(name) {
            Some(Value::List(values)) => {
                let number = |value: &Value| match value {
                    Value::Number(number) if number.is_finite() => Ok(*number),
                    other => Err(fail(&format!("a list with {}", other.describe()))),
                };
                values.iter().map(number).collect()
            }
            Some(other) => Err(fail(&other.describe())),
            None => Err(format!("{} needs the argument '{name}'", self.class)),
        }
    }
}
