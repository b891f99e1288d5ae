//! Which activation a kernel applies.

/// The numbers are those of `kernels/activation.h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum Activation {
    None = 0,
    Elu = 1,
    Relu = 2,
    LeakyRelu = 3,
    /// With the error function itself, not its tanh approximation.
    Gelu = 4,
}
