//! Dingo's `.pt` format, read and written.
