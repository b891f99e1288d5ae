//! The one error of this layer.

/// A mistake in a settings file: which file, which key, what stands there, what is allowed.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    #[error("{file}: {message}")]
    File { file: String, message: String },
    /// `key` is the dotted path, such as `training.stage_0.batch_size`.
    #[error("{key}: {message}")]
    Key { key: String, message: String },
    /// A mistake at a key, with the file it was read from and the key's line there, when known.
    #[error("{file}{}: {error}", line.map(|line| format!(", line {line}")).unwrap_or_default())]
    InFile {
        file: String,
        line: Option<u64>,
        #[source]
        error: Box<SettingsError>,
    },
}

impl SettingsError {
    /// A mistake at a dotted key.
    pub fn key(key: impl Into<String>, message: impl Into<String>) -> Self {
        SettingsError::Key {
            key: key.into(),
            message: message.into(),
        }
    }

    /// The dotted key the error is about, if it is about one.
    pub fn dotted_key(&self) -> Option<&str> {
        match self {
            SettingsError::File { .. } => None,
            SettingsError::Key { key, .. } => Some(key),
            SettingsError::InFile { error, .. } => error.dotted_key(),
        }
    }
}
