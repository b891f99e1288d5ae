//! From what the file stores to polarizations on the frequency grid.
//!
//! Dingo multiplies SVD coefficients with V^H and then with the ASD that the waveforms were whitened by. Both are one
//! linear map, so they are folded into one real matrix here: on (re, im) pairs a complex product is a real one of twice
//! the inner and outer size, its output is a complex64 array as it stands, and one product of real matrices runs faster
//! than a complex one followed by a pass over the output.

use super::DataError;
use crate::gw::domain::UniformFrequencyDomain;
use crate::torch_ext::product;
use num_complex::Complex64;
use std::sync::Mutex;
use tch::{Device, Kind, Tensor};

/// The linear map from stored rows to waveforms of `bins` frequency bins, zero below `min_index`.
pub(super) struct Decompression {
    kind: DecompressionKind,
    bins: usize,
    min_index: usize,
}

enum DecompressionKind {
    /// Real weights `[2 size, 2 (bins - min_index)]`. The lock is held only to copy the handle: libtorch reads the
    /// same storage from many threads, but `tch` does not mark tensors as shareable.
    Basis(Mutex<Tensor>),
    /// A factor per bin, where the waveforms were whitened but not compressed.
    Scale(Vec<f32>),
    None,
}

impl Decompression {
    /// `basis` is V `[bins, size]`, row by row, on the domain's bins; `whitening` the ASD on the same bins.
    pub fn new(domain: &UniformFrequencyDomain, basis: Option<&[Complex64]>, whitening: Option<&[f32]>) -> Self {
        let (bins, min_index) = (domain.num_bins(), domain.min_index());
        let kind = match (basis, whitening) {
            (Some(basis), _) => DecompressionKind::Basis(Mutex::new(weights(basis, whitening, bins, min_index))),
            (None, Some(whitening)) => DecompressionKind::Scale(whitening.to_vec()),
            (None, None) => DecompressionKind::None,
        };
        Self { kind, bins, min_index }
    }

    /// Waveforms `[rows, bins]`, complex64, from `rows` stored rows of (re, im) pairs.
    pub fn apply(&self, stored: Vec<f32>, rows: usize) -> Result<Tensor, DataError> {
        let pairs = match &self.kind {
            // A poisoned lock cannot have left the handle half-changed.
            DecompressionKind::Basis(weights) => {
                let weights = weights
                    .lock()
                    .unwrap_or_else(|poisoned| poisoned.into_inner())
                    .shallow_clone();
                self.expand(&stored, rows as i64, &weights)?
            }
            DecompressionKind::Scale(scale) => self.blank_below_f_min(stored, Some(scale))?,
            DecompressionKind::None => self.blank_below_f_min(stored, None)?,
        };
        let pairs = pairs.f_view([rows as i64, self.bins as i64, 2])?;
        Ok(pairs.f_view_as_complex()?)
    }

    /// The product of coefficients and weights, written into the bins from f_min on.
    fn expand(&self, coefficients: &[f32], rows: i64, weights: &Tensor) -> Result<Tensor, DataError> {
        let (width, blank) = (2 * self.bins as i64, 2 * self.min_index as i64);
        let coefficients = Tensor::f_from_slice(coefficients)?.f_view([rows, weights.size()[0]])?;
        let waveforms = Tensor::f_empty([rows, width], (Kind::Float, Device::Cpu))?;
        let _ = waveforms.f_narrow(1, 0, blank)?.f_zero_()?;
        let mut bins = waveforms.f_narrow(1, blank, width - blank)?;
        product(&coefficients, weights, &mut bins)?;
        Ok(waveforms)
    }

    /// Waveforms that were stored whole: zero below f_min, multiplied by `scale` where there is one.
    fn blank_below_f_min(&self, mut stored: Vec<f32>, scale: Option<&Vec<f32>>) -> Result<Tensor, tch::TchError> {
        for row in stored.chunks_exact_mut(2 * self.bins) {
            row[..2 * self.min_index].fill(0.0);
            for (pair, factor) in row.chunks_exact_mut(2).zip(scale.into_iter().flatten()) {
                pair[0] *= factor;
                pair[1] *= factor;
            }
        }
        Tensor::f_from_slice(&stored)
    }
}

/// V^H diag(ASD) as a real matrix on (re, im) pairs, for the bins from `min_index` on.
fn weights(basis: &[Complex64], whitening: Option<&[f32]>, bins: usize, min_index: usize) -> Tensor {
    let size = basis.len() / bins;
    let columns = bins - min_index;
    let mut weights = vec![0f32; 4 * size * columns];
    for (column, bin) in (min_index..bins).enumerate() {
        let asd = whitening.map_or(1.0, |whitening| whitening[bin]);
        for element in 0..size {
            // The precision Dingo works in: V and the ASD are rounded to single before they are multiplied.
            let v = basis[bin * size + element];
            let (re, im) = (v.re as f32 * asd, v.im as f32 * asd);
            let of_real = 2 * element * 2 * columns + 2 * column;
            let of_imaginary = of_real + 2 * columns;
            weights[of_real..of_real + 2].copy_from_slice(&[re, -im]);
            weights[of_imaginary..of_imaginary + 2].copy_from_slice(&[im, re]);
        }
    }
    Tensor::from_slice(&weights).view([2 * size as i64, 2 * columns as i64])
}
