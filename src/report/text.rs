//! Pages of text for a terminal: titles, aligned fields, tables, blocks of YAML.

use crate::settings::{yaml, Value};
use std::fmt::Display;
use std::io::{self, Write};

/// Puts a page together from the top down.
#[derive(Debug, Default)]
pub struct Page {
    text: String,
}

impl Page {
    /// A page that begins with a title.
    pub fn new(title: &str) -> Page {
        let mut page = Page::default();
        page.heading(title, '=');
        page
    }

    /// A heading under which what follows belongs together.
    pub fn section(&mut self, name: &str) {
        self.text.push('\n');
        self.heading(name, '-');
    }

    fn heading(&mut self, name: &str, line: char) {
        let underline: String = name.chars().map(|_| line).collect();
        self.text.push_str(&format!("{name}\n{underline}\n"));
    }

    /// Names and values, the values in a column.
    pub fn fields<V: Display>(&mut self, fields: impl IntoIterator<Item = (&'static str, V)>) {
        let rows = fields
            .into_iter()
            .map(|(name, value)| [format!("{name}:"), value.to_string()]);
        self.table(rows);
    }

    /// Columns as wide as their widest entry; two spaces between them.
    pub fn table<const N: usize>(&mut self, rows: impl IntoIterator<Item = [String; N]>) {
        let rows: Vec<[String; N]> = rows.into_iter().collect();
        let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        let widths: [usize; N] = std::array::from_fn(width);
        for row in &rows {
            let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
            let line = cells.collect::<Vec<_>>().join("  ");
            self.line(line.trim_end());
        }
    }

    /// Settings in the block style of YAML.
    pub fn yaml(&mut self, value: &Value) {
        self.text.push_str(&yaml::write(value));
    }

    /// Lines as they are.
    pub fn line(&mut self, line: &str) {
        self.text.push_str(line);
        self.text.push('\n');
    }

    pub fn into_text(self) -> String {
        self.text
    }
}

/// A number of bytes with a unit that leaves one to three digits before the point.
pub fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["kB", "MB", "GB", "TB", "PB"];
    if count < 1000 {
        return format!("{count} B");
    }
    let mut value = count as f64 / 1e3;
    let mut unit = 0;
    // What would be shown as 1000.0 belongs to the next unit.
    while value >= 999.95 && unit + 1 < UNITS.len() {
        value /= 1e3;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

/// A count with its thousands apart.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `1 rank`, `2 ranks`.
pub fn plural(number: usize, what: &str) -> String {
    format!("{} {what}{}", count(number as u64), if number == 1 { "" } else { "s" })
}

/// A page to standard output. That nobody reads it to its end (`| head`) is no error.
///
/// # Errors
/// What else the system says.
pub fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_laid_out_in_columns() {
        let mut page = Page::new("Title");
        page.fields([("a", "1"), ("longer", "2")]);
        page.section("Part");
        page.table([
            ["β".to_owned(), "x".into(), "".into()],
            ["gamma".into(), "y".into(), "z".into()],
        ]);
        page.yaml(&yaml::read("{a: [1, 2]}").unwrap().value);
        let expected = "Title\n=====\na:       1\nlonger:  2\n\nPart\n----\nβ      x\ngamma  y  z\na:\n- 1\n- 2\n";
        assert_eq!(page.into_text(), expected);
    }

    #[test]
    fn numbers_are_easy_to_read() {
        let sizes = [
            (0, "0 B"),
            (999, "999 B"),
            (1000, "1.0 kB"),
            (999_949, "999.9 kB"),
            (999_999, "1.0 MB"),
        ];
        for (number, text) in sizes {
            assert_eq!(bytes(number), text);
        }
        assert_eq!(bytes(32_000_000_000), "32.0 GB");
        assert_eq!(bytes(u64::MAX), "18446.7 PB");
        for (number, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (12_345_678, "12,345,678")] {
            assert_eq!(count(number), text);
        }
        assert_eq!([plural(1, "rank"), plural(2, "rank")], ["1 rank", "2 ranks"]);
    }
}
