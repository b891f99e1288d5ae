//! The one error of this layer, and how messages cross the border to C++ and back.

use std::ffi::{c_char, CStr, CString};

/// What libtorch said when a call of the C++ side failed.
#[derive(Debug, thiserror::Error)]
#[error("libtorch: {0}")]
pub struct TorchExtError(pub String);

impl From<tch::TchError> for TorchExtError {
    fn from(error: tch::TchError) -> Self {
        TorchExtError(error.to_string())
    }
}

/// Turns what a C++ entry point returned into a result: null means that all went well.
///
/// # Safety
/// `message` is null or a malloc'ed, null-terminated string that nobody else uses.
pub(super) unsafe fn check(message: *mut c_char) -> Result<(), TorchExtError> {
    if message.is_null() {
        return Ok(());
    }
    let text = CStr::from_ptr(message).to_string_lossy().into_owned();
    libc::free(message.cast());
    Err(TorchExtError(text))
}

/// The way back: what a Rust callback returns to C++, which frees it.
pub(super) fn message_for_cpp(result: Result<(), String>) -> *mut c_char {
    match result {
        Ok(()) => std::ptr::null_mut(),
        Err(text) => {
            let text = CString::new(text.replace('\0', " ")).unwrap_or_default();
            // SAFETY: `text` is a valid C string; strdup copies it into memory that C++ frees.
            unsafe { libc::strdup(text.as_ptr()) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_survive_the_border() {
        let message = message_for_cpp(Err("torn \0 string".into()));
        // SAFETY: the message was just made by strdup.
        let error = unsafe { check(message) }.unwrap_err();
        assert_eq!(error.to_string(), "libtorch: torn   string");
        // SAFETY: null is allowed.
        assert!(unsafe { check(message_for_cpp(Ok(()))) }.is_ok());
    }
}
