//! The numbers that collectives carry.

use mpi::ffi;
use tch::Kind;

/// A plain number with a type of its own in MPI.
pub trait Number: Copy + Send + Default + private::Sealed + 'static {
    #[doc(hidden)]
    fn element() -> Element;
}

mod private {
    pub trait Sealed {}
}

/// What MPI is told about the elements of a buffer.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Element {
    U8,
    I64,
    U64,
    F32,
    F64,
}

impl Element {
    pub(super) fn bytes(self) -> usize {
        match self {
            Element::U8 => 1,
            Element::F32 => 4,
            Element::I64 | Element::U64 | Element::F64 => 8,
        }
    }

    pub(super) fn datatype(self) -> ffi::MPI_Datatype {
        // SAFETY: these are constants of the MPI library.
        unsafe {
            match self {
                Element::U8 => ffi::RSMPI_UINT8_T,
                Element::I64 => ffi::RSMPI_INT64_T,
                Element::U64 => ffi::RSMPI_UINT64_T,
                Element::F32 => ffi::RSMPI_FLOAT,
                Element::F64 => ffi::RSMPI_DOUBLE,
            }
        }
    }

    /// The element of a tensor, where MPI can sum it.
    pub(super) fn of_kind(kind: Kind) -> Option<Element> {
        match kind {
            Kind::Float => Some(Element::F32),
            Kind::Double => Some(Element::F64),
            Kind::Int64 => Some(Element::I64),
            _ => None,
        }
    }
}

macro_rules! number {
    ($($number:ty => $element:ident),*) => {$(
        impl private::Sealed for $number {}
        impl Number for $number {
            fn element() -> Element {
                Element::$element
            }
        }
    )*};
}

number!(u8 => U8, i64 => I64, u64 => U64, f32 => F32, f64 => F64);
