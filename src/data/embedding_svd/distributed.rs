//! A truncated SVD of a matrix whose rows are spread over the ranks.
//!
//! Subspace iteration with a random start (Halko, Martinsson and Tropp, SIAM Review 53, 2011, algorithm 4.4) on A^H A:
//! each pass reads the rank's rows once, in blocks, and what is summed over the ranks is as small as the basis. Every
//! pass also gives the energy that the subspace captures (Rayleigh-Ritz), which tells when to stop: no more passes are
//! made than the spectrum asks for.

use super::SumOverRanks;
use crate::data::split::MersenneTwister;
use anyhow::Context;
use tch::{Kind, Tensor};

/// Rows that are in memory in double precision at a time.
const BLOCK_ROWS: i64 = 1024;

/// The iteration ends when a pass lowers the energy outside the basis by less than this part of it.
const TOLERANCE: f64 = 1e-4;

/// Energy outside of the basis, relative to all, that is rounding of single-precision waveforms and nothing more.
const NEGLIGIBLE: f64 = 1e-14;

/// Slow spectra end here; each pass still improves what was there before.
const MAX_PASSES: usize = 40;

/// The leading right singular vectors V `[columns, size]` (complex128) and singular values, largest first.
pub(super) struct TruncatedSvd {
    pub v: Tensor,
    pub s: Vec<f64>,
}

/// What one pass over all rows gives for an orthonormal Q `[columns, width]`.
struct Pass {
    /// A^H A Q `[columns, width]`
    image: Tensor,
    /// (A Q)^H A Q `[width, width]`
    gram: Tensor,
    /// Sum of |A|^2
    energy: f64,
}

/// The truncated SVD of the matrix that has this rank's `rows` (`[local rows, columns]`, complex) among its `row_count`
/// rows. All ranks call it together and get the same result, up to rounding also for any number of ranks.
pub(super) fn truncated_svd(
    rows: &Tensor,
    row_count: usize,
    size: usize,
    seed: u32,
    sum: &dyn SumOverRanks,
) -> anyhow::Result<TruncatedSvd> {
    let columns = rows.size2()?.1;
    // Vectors beyond those asked for speed up the convergence of the last ones.
    let spare = (size / 2).max(16);
    let width = ((size + spare).min(row_count) as i64).min(columns);
    let start = random_matrix(columns, width, seed)?;
    let (mut q, _) = Tensor::f_linalg_qr(&start, "reduced")?;
    let mut outside_before = f64::INFINITY;
    for pass_number in 1.. {
        let pass = pass_over_rows(rows, &q, sum)?;
        let (values, vectors) = pass
            .gram
            .f_linalg_eigh("L")
            .context("the waveforms' SVD did not converge")?;
        // Ascending; the last `size` are the basis.
        let skipped = width - size as i64;
        let values = values
            .f_narrow(0, skipped, size as i64)?
            .f_flip([0])?
            .f_clamp_min(0.0)?;
        let outside = (pass.energy - values.f_sum(Kind::Double)?.f_double_value(&[])?).max(0.0);
        let converged = outside_before - outside <= TOLERANCE * outside || outside <= NEGLIGIBLE * pass.energy;
        // Ranks on unlike processors may round differently; they must not part ways over it.
        let mut agreed = [f64::from(u8::from(converged))];
        sum.sum_f64(&mut agreed)?;
        log::info!(
            "SVD pass {pass_number} of at most {MAX_PASSES}: {:.2e} of the energy outside the basis",
            outside / pass.energy
        );
        if agreed[0] > 0.0 || pass_number == MAX_PASSES {
            let vectors = vectors.f_narrow(1, skipped, size as i64)?.f_flip([1])?;
            return Ok(TruncatedSvd {
                v: with_fixed_phases(&q.f_matmul(&vectors)?, &start)?,
                s: Vec::try_from(values.f_sqrt()?)?,
            });
        }
        outside_before = outside;
        q = Tensor::f_linalg_qr(&pass.image, "reduced")?.0;
    }
    unreachable!("the loop ends after MAX_PASSES")
}

fn pass_over_rows(rows: &Tensor, q: &Tensor, sum: &dyn SumOverRanks) -> anyhow::Result<Pass> {
    let (columns, width) = q.size2()?;
    let options = (Kind::ComplexDouble, rows.device());
    let mut image = Tensor::f_zeros([columns, width], options)?;
    let mut gram = Tensor::f_zeros([width, width], options)?;
    let mut energy = 0.0;
    let q = q.f_to_device(rows.device())?;
    let count = rows.size()[0];
    for first in (0..count).step_by(BLOCK_ROWS as usize) {
        let block = rows
            .f_narrow(0, first, BLOCK_ROWS.min(count - first))?
            .f_to_kind(Kind::ComplexDouble)?;
        let projected = block.f_matmul(&q)?;
        let _ = image.f_addmm_(&block.f_mh()?, &projected)?;
        let _ = gram.f_addmm_(&projected.f_mh()?, &projected)?;
        energy += block
            .f_view_as_real()?
            .f_square()?
            .f_sum(Kind::Double)?
            .f_double_value(&[])?;
    }
    // One message for all three.
    let mut numbers = real_numbers(&image)?;
    numbers.extend(real_numbers(&gram)?);
    numbers.push(energy);
    sum.sum_f64(&mut numbers)?;
    let (image, rest) = numbers.split_at((2 * columns * width) as usize);
    let (gram, energy) = rest.split_at((2 * width * width) as usize);
    anyhow::ensure!(energy[0].is_finite(), "the waveforms hold NaN or infinite numbers");
    anyhow::ensure!(energy[0] > 0.0, "all waveforms are zero");
    Ok(Pass {
        image: complex_matrix(image, columns, width)?,
        gram: complex_matrix(gram, width, width)?,
        energy: energy[0],
    })
}

/// Singular vectors are free up to a phase. Fixing it by the scalar product with a random vector (which does not vanish)
/// makes the result the same for any number of ranks.
fn with_fixed_phases(v: &Tensor, random: &Tensor) -> Result<Tensor, tch::TchError> {
    let product = random.f_narrow(1, 0, 1)?.f_mh()?.f_matmul(v)?;
    v.f_mul(&product.f_sgn()?.f_conj()?)
}

/// Uniform real and imaginary parts in [-1, 1).
fn random_matrix(rows: i64, columns: i64, seed: u32) -> Result<Tensor, tch::TchError> {
    let mut generator = MersenneTwister::new(seed);
    let numbers: Vec<f64> = (0..2 * rows * columns)
        .map(|_| 2.0 * generator.next_f64() - 1.0)
        .collect();
    complex_matrix(&numbers, rows, columns)
}

/// The (re, im) pairs of a complex128 matrix, row by row.
pub(super) fn real_numbers(matrix: &Tensor) -> Result<Vec<f64>, tch::TchError> {
    let pairs = matrix
        .f_to_device(tch::Device::Cpu)?
        .f_resolve_conj()?
        .f_contiguous()?
        .f_view_as_real()?;
    Vec::try_from(pairs.f_flatten(0, -1)?)
}

fn complex_matrix(pairs: &[f64], rows: i64, columns: i64) -> Result<Tensor, tch::TchError> {
    Tensor::f_from_slice(pairs)?
        .f_view([rows, columns, 2])?
        .f_view_as_complex()
}
