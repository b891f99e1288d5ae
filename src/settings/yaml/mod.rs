//! YAML as PyYAML's `safe_load` reads it (YAML 1.1) and as its `dump` writes it, so that a settings file means the same
//! here and in Dingo: `on` is true, `5.0e-5` a number, `1e-4` and `'on'` are text.

mod read;
mod scalar;
mod write;

pub use read::{read, Document, YamlError};
pub use scalar::float_text;
pub use write::write;

#[cfg(test)]
mod tests;
