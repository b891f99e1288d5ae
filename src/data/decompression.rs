//! From what the file stores to polarizations on the frequency grid.
//!
//! Dingo multiplies SVD coefficients with V^H and then with the ASD that the waveforms were whitened by. Both are one
//! linear map, folded into one matrix here. The complex product is made from three products of real matrices rather than
//! four, as Gauss multiplied complex numbers: (a + ib)(c + id) has the real part ac - bd and the imaginary part
//! (a + b)(c + d) - ac - bd. What remains is left to whoever uses the waveforms, who has to read them anyway.
//!
//! The products are made in stretches of frequency bins: the weights of a stretch stay in the cache while the samples go
//! by, and so do the products until they are used.

use super::DataError;
use crate::gw::domain::UniformFrequencyDomain;
use crate::torch_ext::product;
use crate::torch_ext::strain::{Waveforms, STRETCH_ALIGNMENT};
use num_complex::Complex64;
use std::ops::Range;
use std::sync::Mutex;
use tch::{Device, Kind, Tensor};

/// Bins of a stretch: the weights of 200 coefficients are 0.6 MB then. A multiple of what `network_inputs` asks for.
const STRETCH: usize = 4 * STRETCH_ALIGNMENT;

/// The linear map from stored rows to waveforms of `bins` frequency bins, zero below `min_index`.
pub(super) struct Decompression {
    kind: DecompressionKind,
    bins: usize,
    min_index: usize,
}

enum DecompressionKind {
    /// Real weights of each stretch, `[3, size, bins of the stretch]`. The lock is held only to copy a handle: libtorch
    /// reads the same storage from many threads, but `tch` does not mark tensors as shareable.
    Basis(Mutex<Vec<Tensor>>),
    /// A factor per bin, where the waveforms were whitened but not compressed.
    Scale(Vec<f32>),
    None,
}

impl Decompression {
    /// `basis` is V `[bins, size]`, row by row, on the domain's bins; `whitening` the ASD on the same bins.
    pub fn new(domain: &UniformFrequencyDomain, basis: Option<&[Complex64]>, whitening: Option<&[f32]>) -> Self {
        let (bins, min_index) = (domain.num_bins(), domain.min_index());
        let kind = match (basis, whitening) {
            (Some(basis), _) => {
                let weights = |stretch| weights(basis, whitening, bins, stretch);
                DecompressionKind::Basis(Mutex::new(stretches(min_index, bins).map(weights).collect()))
            }
            (None, Some(whitening)) => DecompressionKind::Scale(whitening.to_vec()),
            (None, None) => DecompressionKind::None,
        };
        Self { kind, bins, min_index }
    }

    /// Whether waveforms are stored as coefficients, which are much smaller.
    pub fn is_expanding(&self) -> bool {
        matches!(self.kind, DecompressionKind::Basis(_))
    }

    /// The bins from f_min on that are best made at a time.
    pub fn stretches(&self) -> Vec<Range<usize>> {
        match self.is_expanding() {
            true => stretches(self.min_index, self.bins).collect(),
            false => std::iter::once(self.min_index..self.bins).collect(),
        }
    }

    /// What [`Decompression::stretch`] works on, from stored rows of (re, im) pairs: with a basis, the real parts, the
    /// imaginary parts and their sums, `[3, rows, size]`.
    pub fn prepare(&self, mut stored: Vec<f32>, rows: usize) -> Result<Tensor, DataError> {
        let rows = rows as i64;
        match &self.kind {
            DecompressionKind::Basis(weights) => {
                let size = handle(weights, 0).size()[1];
                return Ok(Tensor::f_from_slice(&planes(&stored))?.f_view([3, rows, size])?);
            }
            DecompressionKind::Scale(scale) => self.blank_below_f_min(&mut stored, Some(scale)),
            DecompressionKind::None => self.blank_below_f_min(&mut stored, None),
        }
        // Also of no rows, as the share of a rank may be.
        let width = (stored.len() as i64).checked_div(rows).unwrap_or(2 * self.bins as i64);
        Ok(Tensor::f_from_slice(&stored)?.f_view([rows, width])?)
    }

    /// The waveforms of prepared rows, half of them of each polarization, at the bins of stretch `number`. `scratch` is where
    /// they are put if they are not in memory already; the next call may overwrite them.
    pub fn stretch(&self, prepared: &Tensor, number: usize, scratch: &mut Scratch) -> Result<Waveforms, DataError> {
        let DecompressionKind::Basis(weights) = &self.kind else {
            let from = 2 * self.min_index as i64;
            let both = complex(&prepared.f_narrow(1, from, 2 * self.bins as i64 - from)?)?;
            let samples = both.size()[0] / 2;
            return Ok(Waveforms::Complex {
                plus: both.f_narrow(0, 0, samples)?,
                cross: both.f_narrow(0, samples, samples)?,
            });
        };
        let weights = handle(weights, number);
        let products = scratch.tensor([3, prepared.size()[1], weights.size()[2]])?;
        for part in 0..3 {
            let mut place = products.f_select(0, part)?;
            product(&prepared.f_select(0, part)?, &weights.f_select(0, part)?, &mut place)?;
        }
        Ok(Waveforms::Products(products))
    }

    /// The waveforms of prepared rows at all bins from 0 Hz on, `[rows, bins]`, complex64.
    pub fn whole(&self, prepared: &Tensor) -> Result<Tensor, DataError> {
        let DecompressionKind::Basis(_) = &self.kind else {
            return complex(prepared);
        };
        let (rows, bins) = (prepared.size()[1], self.bins as i64);
        let waveforms = Tensor::f_zeros([rows, bins, 2], (Kind::Float, Device::Cpu))?;
        let mut scratch = Scratch::default();
        for (number, bins) in self.stretches().iter().enumerate() {
            let Waveforms::Products(products) = self.stretch(prepared, number, &mut scratch)? else {
                unreachable!("a basis gives products")
            };
            let part = |part| products.f_select(0, part);
            let place = waveforms.f_narrow(1, bins.start as i64, bins.len() as i64)?;
            let imaginary = part(2)?.f_sub(&part(0)?)?.f_sub(&part(1)?)?;
            place.f_select(2, 0)?.f_copy_(&part(0)?.f_sub(&part(1)?)?)?;
            place.f_select(2, 1)?.f_copy_(&imaginary)?;
        }
        Ok(waveforms.f_view_as_complex()?)
    }

    /// Waveforms that were stored whole: zero below f_min, multiplied by `scale` where there is one.
    fn blank_below_f_min(&self, stored: &mut [f32], scale: Option<&Vec<f32>>) {
        for row in stored.chunks_exact_mut(2 * self.bins) {
            row[..2 * self.min_index].fill(0.0);
            for (pair, factor) in row.chunks_exact_mut(2).zip(scale.into_iter().flatten()) {
                pair[0] *= factor;
                pair[1] *= factor;
            }
        }
    }
}

/// Memory for products of matrices, used from stretch to stretch.
#[derive(Debug, Default)]
pub struct Scratch {
    flat: Option<Tensor>,
}

impl Scratch {
    fn tensor(&mut self, shape: [i64; 3]) -> Result<Tensor, tch::TchError> {
        let count = shape.iter().product();
        let flat = match self.flat.take().filter(|flat| flat.numel() as i64 >= count) {
            Some(flat) => flat,
            None => Tensor::f_empty([count], (Kind::Float, Device::Cpu))?,
        };
        let tensor = flat.f_narrow(0, 0, count)?.f_view(shape)?;
        self.flat = Some(flat);
        Ok(tensor)
    }
}

/// Real parts, imaginary parts and their sums of (re, im) pairs, one after the other.
fn planes(pairs: &[f32]) -> Vec<f32> {
    let parts = |part: fn(&[f32]) -> f32| pairs.chunks_exact(2).map(part);
    let (real, imaginary) = (parts(|pair| pair[0]), parts(|pair| pair[1]));
    real.chain(imaginary).chain(parts(|pair| pair[0] + pair[1])).collect()
}

fn stretches(first: usize, end: usize) -> impl Iterator<Item = Range<usize>> {
    (first..end)
        .step_by(STRETCH)
        .map(move |start| start..end.min(start + STRETCH))
}

fn handle(weights: &Mutex<Vec<Tensor>>, number: usize) -> Tensor {
    // A poisoned lock cannot have left a handle half-changed.
    let weights = weights.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    weights[number].shallow_clone()
}

/// Rows of (re, im) pairs as rows of complex numbers.
fn complex(pairs: &Tensor) -> Result<Tensor, DataError> {
    let (rows, width) = pairs.size2()?;
    let row = pairs.stride()[0];
    let pairs = pairs.f_as_strided([rows, width / 2, 2], [row, 2, 1], None::<i64>)?;
    Ok(pairs.f_view_as_complex()?)
}

/// V^H diag(ASD) for some of the bins: its real part, its imaginary part and their sum, `[3, size, bins of the stretch]`.
fn weights(basis: &[Complex64], whitening: Option<&[f32]>, bins: usize, stretch: Range<usize>) -> Tensor {
    let size = basis.len() / bins;
    let columns = stretch.len();
    let mut pairs = vec![0f32; 2 * size * columns];
    for (column, bin) in stretch.enumerate() {
        let asd = whitening.map_or(1.0, |whitening| whitening[bin]);
        for element in 0..size {
            // The precision Dingo works in: V and the ASD are rounded to single before they are multiplied.
            let v = basis[bin * size + element];
            let place = 2 * (element * columns + column);
            pairs[place..place + 2].copy_from_slice(&[v.re as f32 * asd, -v.im as f32 * asd]);
        }
    }
    Tensor::from_slice(&planes(&pairs)).view([3, size as i64, columns as i64])
}
