//! The one error of this layer.

/// A mistake in a settings file: which file, which key, what stands there, what is allowed.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    #[error("{file}: {message}")]
    File { file: String, message: String },
    /// `key` is the dotted path, such as `training.stage_0.batch_size`.
    #[error("{key}: {message}")]
    Key { key: String, message: String },
}
