//! Large matrix products on the host: a choice between the libraries inside libtorch, made by measurement.
//!
//! The choice is one per process and holds for every product of the layers in [`linear`](super::linear) and for
//! [`product`]. Libraries round differently, so all ranks of a training must choose alike.

use super::error::{check, TorchExtError};
use std::ffi::{c_char, c_int};
use tch::Tensor;
use torch_sys::C_tensor;

/// A library for matrix products of single precision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum MatrixLibrary {
    /// What libtorch itself uses, and what holds until another one is chosen.
    Mkl = 0,
    OneDnn = 1,
}

impl MatrixLibrary {
    pub const ALL: [MatrixLibrary; 2] = [MatrixLibrary::Mkl, MatrixLibrary::OneDnn];

    /// Its own name for itself.
    pub fn name(self) -> &'static str {
        match self {
            MatrixLibrary::Mkl => "MKL",
            MatrixLibrary::OneDnn => "oneDNN",
        }
    }

    /// Whether this libtorch has it.
    pub fn is_there(self) -> bool {
        // SAFETY: looks at a constant.
        unsafe { dingo_matmul_has(self as c_int) }
    }
}

/// What a library does on this machine with the threads of the caller.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MatrixSpeed {
    pub library: MatrixLibrary,
    /// For the products of the probe, with [`flops`](Self::flops) operations.
    pub seconds: f64,
    pub flops: f64,
    /// The largest error, relative to the largest number of the product.
    pub error: f64,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct RawSpeed {
    seconds: f64,
    flops: f64,
    error: f64,
}

extern "C" {
    fn dingo_matmul_measure(speeds: *mut RawSpeed) -> *mut c_char;
    fn dingo_matmul_has(library: c_int) -> bool;
    fn dingo_matmul_choose(library: c_int);
    fn dingo_matmul_chosen() -> c_int;
    fn dingo_matmul_product(
        library: c_int,
        a: *const C_tensor,
        b: *const C_tensor,
        out: *const C_tensor,
        beta: f32,
    ) -> *mut c_char;
}

/// Times the libraries that are there on products like those of a training step, which takes a fraction of a second.
///
/// # Errors
/// What libtorch says.
pub fn measure_matrix_libraries() -> Result<Vec<MatrixSpeed>, TorchExtError> {
    let mut raw = [RawSpeed::default(); MatrixLibrary::ALL.len()];
    // SAFETY: room for all libraries.
    unsafe { check(dingo_matmul_measure(raw.as_mut_ptr()))? };
    let speed = |(library, raw): (MatrixLibrary, RawSpeed)| MatrixSpeed {
        library,
        seconds: raw.seconds,
        flops: raw.flops,
        error: raw.error,
    };
    let all = MatrixLibrary::ALL.into_iter().zip(raw).map(speed);
    Ok(all.filter(|speed| speed.library.is_there()).collect())
}

/// From now on, for all of the process.
pub fn choose_matrix_library(library: MatrixLibrary) {
    // SAFETY: a number that the C++ side knows.
    unsafe { dingo_matmul_choose(library as c_int) }
}

/// What is in force.
pub fn chosen_matrix_library() -> MatrixLibrary {
    // SAFETY: reads an atomic.
    match unsafe { dingo_matmul_chosen() } {
        1 => MatrixLibrary::OneDnn,
        _ => MatrixLibrary::Mkl,
    }
}

/// `out` = `a` `b` by the chosen library, outside of autograd. All are matrices of single precision on the host; rows (or of
/// `a` and `b`, columns) are dense and may lie apart.
///
/// # Errors
/// Other tensors, or shapes that do not fit.
pub fn product(a: &Tensor, b: &Tensor, out: &mut Tensor) -> Result<(), TorchExtError> {
    product_by(None, a, b, out, false)
}

fn product_by(
    library: Option<MatrixLibrary>,
    a: &Tensor,
    b: &Tensor,
    out: &mut Tensor,
    adds: bool,
) -> Result<(), TorchExtError> {
    let (library, beta) = (
        library.map_or(-1, |library| library as c_int),
        f32::from(u8::from(adds)),
    );
    // SAFETY: the tensors live through the call; shapes are checked there.
    unsafe {
        check(dingo_matmul_product(
            library,
            a.as_ptr(),
            b.as_ptr(),
            out.as_ptr(),
            beta,
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tch::{kind, Kind};

    /// Numbers in the upper left corner of a larger matrix, so that rows lie apart.
    fn apart(rows: i64, columns: i64) -> Tensor {
        Tensor::randn([rows + 1, columns + 3], kind::FLOAT_CPU)
            .narrow(0, 0, rows)
            .narrow(1, 0, columns)
    }

    fn check_product(library: MatrixLibrary, a: &Tensor, b: &Tensor, mut out: Tensor, what: &str) {
        for adds in [false, true] {
            let product = a.to_kind(Kind::Double).matmul(&b.to_kind(Kind::Double));
            let exact = if adds { product + &out } else { product };
            if !adds {
                let _ = out.fill_(f64::NAN);
            }
            product_by(Some(library), a, b, &mut out, adds).unwrap();
            let largest = |t: Tensor| t.abs().max().double_value(&[]);
            let error = largest(&exact - &out) / largest(exact);
            assert!(error < 1e-5, "{what} by {library:?}, adds {adds}: {error:e}");
        }
    }

    #[test]
    fn every_library_multiplies_matrices_however_they_lie() {
        tch::manual_seed(1);
        let dense = |rows, columns| Tensor::randn([rows, columns], kind::FLOAT_CPU);
        for library in MatrixLibrary::ALL.into_iter().filter(|&library| library.is_there()) {
            for (m, n, k) in [(7, 5, 3), (1, 4, 6), (6, 1, 4), (5, 6, 1), (64, 33, 128)] {
                for (name, matrix) in [("dense", &dense as &dyn Fn(i64, i64) -> Tensor), ("apart", &apart)] {
                    let what = format!("{name} [{m}, {k}] by [{k}, {n}]");
                    check_product(library, &matrix(m, k), &matrix(k, n), matrix(m, n), &what);
                    check_product(library, &matrix(k, m).tr(), &matrix(k, n), matrix(m, n), &what);
                    check_product(library, &matrix(m, k), &matrix(n, k).tr(), matrix(m, n), &what);
                    check_product(library, &matrix(k, m).tr(), &matrix(n, k).tr(), matrix(m, n), &what);
                }
            }
            // Large enough to be packed in panels along each of the dimensions.
            let n = 300_000;
            check_product(library, &apart(4, n), &dense(5, n).tr(), apart(4, 5), "long rows");
            check_product(library, &dense(5, n), &apart(4, n).tr(), apart(5, 4), "long rows");
            check_product(library, &apart(4, n).tr(), &dense(4, 3), apart(n, 3), "many rows");
            check_product(library, &dense(3, 4), &apart(4, n), apart(3, n), "many columns");
        }
    }

    #[test]
    fn empty_products_are_zero_and_others_refused() {
        let zeros = |rows, columns| Tensor::zeros([rows, columns], kind::FLOAT_CPU);
        let mut out = Tensor::ones([2, 3], kind::FLOAT_CPU);
        product(&zeros(2, 0), &zeros(0, 3), &mut out).unwrap();
        assert!(out.equal(&zeros(2, 3)));
        product(&zeros(0, 2), &zeros(2, 3), &mut zeros(0, 3)).unwrap();
        let message = product(&zeros(2, 4), &zeros(3, 3), &mut out).unwrap_err().to_string();
        assert!(message.contains("[2, 4] and [3, 3]"), "{message}");
        assert!(product(&zeros(2, 2).to_kind(Kind::Double), &zeros(2, 3), &mut out).is_err());
    }

    #[test]
    fn all_libraries_are_measured_and_exact() {
        let speeds = measure_matrix_libraries().unwrap();
        assert!(speeds.iter().any(|speed| speed.library == MatrixLibrary::OneDnn));
        for speed in speeds {
            assert!(speed.seconds > 0.0 && speed.flops > 1e9, "{speed:?}");
            eprintln!("{speed:?}");
        }
    }
}
