//! From polarizations to detector strains: the Rust face of `kernels/strain.h`.

use std::ops::Range;

use tch::{Device, Kind, Tensor};

use super::random::RandomStream;
use super::simd::Level;

/// How one detector sees one sample.
#[derive(Debug, Clone)]
pub struct Projection<'a> {
    /// Antenna patterns times the ratio of the polarizations' luminosity distance to the sample's.
    pub plus: f32,
    pub cross: f32,
    /// Arrival time times bin width: phase per bin in turns.
    pub turns: f64,
    /// Amplitude spectral density from bin 0 on, 1/sqrt(Hz).
    pub asd: &'a [f32],
    /// Where the noise of the first output bin and those after it comes from; `None` adds none.
    pub noise: Option<RandomStream>,
    /// Output bins that are kept; the others are set to zero in all channels. Ignored by [`clean_strains`].
    pub keep: Range<usize>,
}

/// The bins of the output and the scales of its channels.
#[derive(Debug, Clone, Copy)]
pub struct Scaling {
    /// Index of the first bin that is written.
    pub first_bin: usize,
    /// The strain is multiplied by `whitening / asd`.
    pub whitening: f32,
    /// The third channel is `asd_scale / asd`.
    pub asd_scale: f32,
}

/// What the kernel reads; the same as in `strain.cpp`.
#[repr(C)]
struct RawProjection {
    h_plus: *const f32,
    h_cross: *const f32,
    asd: *const f32,
    turns: f64,
    phases: *mut Phases,
    plus: f32,
    cross: f32,
    keep_from: u32,
    keep_to: u32,
    has_noise: u32,
    noise: RandomStream,
}

/// The phases of one sample in one detector, at the next bin to be made; what `strain.h` calls a `PhaseTable`.
#[repr(C)]
#[derive(Debug, Clone)]
pub struct Phases {
    cosine: [f32; STRETCH_ALIGNMENT],
    sine: [f32; STRETCH_ALIGNMENT],
    start_cosine: f64,
    start_sine: f64,
    step_cosine: f64,
    step_sine: f64,
    next_bin: i64,
}

impl Phases {
    /// From bin `first_bin` on; `turns` as in [`Projection`].
    pub fn begin(turns: f64, first_bin: usize) -> Phases {
        let mut phases = Phases {
            cosine: [0.0; STRETCH_ALIGNMENT],
            sine: [0.0; STRETCH_ALIGNMENT],
            start_cosine: 0.0,
            start_sine: 0.0,
            step_cosine: 0.0,
            step_sine: 0.0,
            next_bin: first_bin as i64,
        };
        // SAFETY: writes to the structure it is given, which has the same layout in C++.
        unsafe { dingo_strain_begin(turns, first_bin as i64, &mut phases) };
        phases
    }
}

/// The same as in `strain.cpp`.
#[repr(C)]
struct RawStretch {
    first: i64,
    position: i64,
    bins: i64,
    row: i64,
    plane: i64,
    whitening: f32,
    asd_scale: f32,
}

extern "C" {
    fn dingo_strain_network_inputs(
        level: i32,
        projections: *const RawProjection,
        count: i64,
        stretch: *const RawStretch,
        output: *mut f32,
    );
    fn dingo_strain_begin(turns: f64, first: i64, phases: *mut Phases);
    fn dingo_strain_clean(projections: *const RawProjection, count: i64, bins: i64, whitening: f32, output: *mut f32);
}

/// Arguments whose shapes or types do not fit together.
#[derive(Debug, thiserror::Error, PartialEq)]
#[error("{0}")]
pub struct ShapeError(String);

/// Polarizations of some samples.
#[derive(Debug)]
pub enum Waveforms {
    /// Each `[samples, bins]`, complex64; rows may lie apart.
    Complex { plus: Tensor, cross: Tensor },
    /// Three products of real matrices, `[3, 2 samples, bins]`, float32: of the real parts, of the imaginary parts, and of
    /// their sums. The rows of plus come before those of cross.
    Products(Tensor),
}

/// Output bins of a stretch begin at multiples of this, except where the output does: noise comes in chunks of 64 bins.
pub const STRETCH_ALIGNMENT: usize = 64;

/// Projects, whitens, adds noise and packs for the network, in one pass over a stretch of bins.
///
/// * `waveforms`: from bin `first_bin` on;
/// * `projections`: `samples × detectors` of them, detectors innermost;
/// * `phases`: those of the projections, begun at `scaling.first_bin`. The stretches of a sample are made in order, and each
///   moves its phases on;
/// * `output`: `[rows, detectors, 3, all bins]`, float32, from bin `scaling.first_bin` on. The samples fill the rows from
///   `first_row` on with real part, imaginary part and `asd_scale / asd`, at the bins of the polarizations.
#[allow(clippy::too_many_arguments)]
pub fn network_inputs(
    waveforms: &Waveforms,
    first_bin: usize,
    projections: &[Projection],
    phases: &mut [Phases],
    scaling: &Scaling,
    output: &mut Tensor,
    first_row: usize,
) -> Result<(), ShapeError> {
    let level = Level::detected();
    network_inputs_at_level(
        level,
        waveforms,
        first_bin,
        projections,
        phases,
        scaling,
        output,
        first_row,
    )
}

#[allow(clippy::too_many_arguments)]
fn network_inputs_at_level(
    level: Level,
    waveforms: &Waveforms,
    first_bin: usize,
    projections: &[Projection],
    phases: &mut [Phases],
    scaling: &Scaling,
    output: &mut Tensor,
    first_row: usize,
) -> Result<(), ShapeError> {
    let polarizations = Polarizations::of(waveforms)?;
    let size = output.size();
    let [rows, detectors, 3, row] = size[..] else {
        return Err(ShapeError(format!(
            "output has shape {size:?}, not [rows, detectors, 3, bins]"
        )));
    };
    let (rows, detectors, row) = (rows as usize, detectors as usize, row as usize);
    let position = first_bin.wrapping_sub(scaling.first_bin);
    let fits = first_bin >= scaling.first_bin && position % STRETCH_ALIGNMENT == 0;
    if !fits || position + polarizations.bins > row || first_row + polarizations.samples > rows {
        let from = scaling.first_bin;
        return Err(ShapeError(format!(
            "output {size:?} of bins from {from} on, from row {first_row} on, does not fit {} samples from bin \
             {first_bin} on",
            polarizations.samples
        )));
    }
    check_host(output, Kind::Float, "output")?;
    if !output.is_contiguous() {
        return Err(ShapeError("output must be contiguous".into()));
    }
    if phases.len() != projections.len() || phases.iter().any(|phases| phases.next_bin != first_bin as i64) {
        return Err(ShapeError(format!(
            "the {} phases are not those of {} projections at bin {first_bin}",
            phases.len(),
            projections.len()
        )));
    }
    let mut raw = polarizations.raw(projections, detectors, first_bin + polarizations.bins, row)?;
    for (raw, phases) in raw.iter_mut().zip(phases) {
        raw.phases = phases;
        phases.next_bin += polarizations.bins as i64;
    }
    let stretch = RawStretch {
        first: first_bin as i64,
        position: position as i64,
        bins: polarizations.bins as i64,
        row: row as i64,
        plane: polarizations.plane as i64,
        whitening: scaling.whitening,
        asd_scale: scaling.asd_scale,
    };
    // SAFETY: every pointer was checked to have all bins of the stretch behind it, and the output all rows; `output` is
    // borrowed mutably, so nobody else writes to it through this handle; `level` is one the processor has.
    unsafe {
        let first = output.data_ptr().cast::<f32>().add(first_row * detectors * 3 * row);
        dingo_strain_network_inputs(level as i32, raw.as_ptr(), raw.len() as i64, &stretch, first);
    }
    Ok(())
}

/// Projects without noise: `[samples, detectors, bins]`, complex64, all bins from 0 on. With `whitening` the strain is
/// multiplied by `whitening / asd`, without it stays in physical units.
pub fn clean_strains(
    plus: &Tensor,
    cross: &Tensor,
    projections: &[Projection],
    detectors: usize,
    whitening: Option<f32>,
) -> Result<Tensor, ShapeError> {
    let polarizations = Polarizations::new(plus, cross)?;
    let mut raw = polarizations.raw(projections, detectors, polarizations.bins, 0)?;
    if whitening.is_none() {
        raw.iter_mut().for_each(|projection| projection.asd = std::ptr::null());
    }
    let shape = [
        polarizations.samples as i64,
        detectors as i64,
        polarizations.bins as i64,
    ];
    let output = Tensor::f_empty(shape, (Kind::ComplexFloat, Device::Cpu)).map_err(|e| ShapeError(e.to_string()))?;
    // SAFETY: as above; the output was made with the size that is written.
    unsafe {
        let (count, bins) = (raw.len() as i64, polarizations.bins as i64);
        dingo_strain_clean(
            raw.as_ptr(),
            count,
            bins,
            whitening.unwrap_or(1.0),
            output.data_ptr().cast(),
        );
    }
    Ok(output)
}

/// Checked polarizations of some samples.
struct Polarizations {
    plus: *const f32,
    cross: *const f32,
    samples: usize,
    bins: usize,
    /// Floats from one row to the next, in both.
    strides: [usize; 2],
    /// Floats between the three products, 0 for complex waveforms.
    plane: usize,
}

impl Polarizations {
    fn of(waveforms: &Waveforms) -> Result<Polarizations, ShapeError> {
        match waveforms {
            Waveforms::Complex { plus, cross } => Polarizations::new(plus, cross),
            Waveforms::Products(products) => Polarizations::from_products(products),
        }
    }

    fn from_products(products: &Tensor) -> Result<Polarizations, ShapeError> {
        check_host(products, Kind::Float, "products")?;
        match (&products.size()[..], products.is_contiguous()) {
            (&[3, rows, bins], true) if rows % 2 == 0 => {
                let (rows, bins) = (rows as usize, bins as usize);
                let plus = products.data_ptr().cast::<f32>();
                Ok(Polarizations {
                    plus,
                    cross: plus.wrapping_add(rows / 2 * bins),
                    samples: rows / 2,
                    bins,
                    strides: [bins, bins],
                    // Without rows there is nothing to read, but it is still not the other layout.
                    plane: (rows * bins).max(1),
                })
            }
            (size, _) => Err(ShapeError(format!(
                "products have shape {size:?}, not [3, 2 samples, bins]"
            ))),
        }
    }

    fn new(plus: &Tensor, cross: &Tensor) -> Result<Polarizations, ShapeError> {
        check_host(plus, Kind::ComplexFloat, "plus")?;
        check_host(cross, Kind::ComplexFloat, "cross")?;
        match (&plus.size()[..], &cross.size()[..]) {
            (&[samples, bins], other) if other == [samples, bins] => Ok(Polarizations {
                plus: plus.data_ptr().cast(),
                cross: cross.data_ptr().cast(),
                samples: samples as usize,
                bins: bins as usize,
                strides: [row_stride(plus, "plus")?, row_stride(cross, "cross")?],
                plane: 0,
            }),
            (plus, cross) => Err(ShapeError(format!("polarizations have shapes {plus:?} and {cross:?}"))),
        }
    }

    /// The kernel's view of the projections, which have ASDs of `asd_bins` bins and keep at most `kept_bins` bins.
    fn raw(
        &self,
        projections: &[Projection],
        detectors: usize,
        asd_bins: usize,
        kept_bins: usize,
    ) -> Result<Vec<RawProjection>, ShapeError> {
        if projections.len() != self.samples * detectors {
            let (given, samples) = (projections.len(), self.samples);
            return Err(ShapeError(format!(
                "{given} projections for {samples} samples in {detectors} detectors"
            )));
        }
        if let Some(short) = projections.iter().find(|p| p.asd.len() < asd_bins) {
            return Err(ShapeError(format!(
                "an ASD of {} bins for {} bins",
                short.asd.len(),
                asd_bins
            )));
        }
        let raw = projections.iter().enumerate().map(|(i, projection)| {
            let [plus, cross] = self.strides.map(|stride| stride * (i / detectors));
            let (from, to) = (projection.keep.start.min(kept_bins), projection.keep.end.min(kept_bins));
            RawProjection {
                h_plus: self.plus.wrapping_add(plus),
                h_cross: self.cross.wrapping_add(cross),
                asd: projection.asd.as_ptr(),
                turns: projection.turns,
                phases: std::ptr::null_mut(),
                plus: projection.plus,
                cross: projection.cross,
                keep_from: from as u32,
                keep_to: to as u32,
                has_noise: projection.noise.is_some() as u32,
                noise: projection.noise.unwrap_or(RandomStream {
                    key: [0; 2],
                    counter: [0; 3],
                }),
            }
        });
        Ok(raw.collect())
    }
}

fn check_host(tensor: &Tensor, kind: Kind, name: &str) -> Result<(), ShapeError> {
    if tensor.device() != Device::Cpu || tensor.kind() != kind {
        let (device, found) = (tensor.device(), tensor.kind());
        return Err(ShapeError(format!(
            "{name} must be {kind:?} on the host, not {found:?} on {device:?}"
        )));
    }
    Ok(())
}

/// Floats from one row of complex numbers to the next; the numbers of a row lie side by side.
fn row_stride(matrix: &Tensor, name: &str) -> Result<usize, ShapeError> {
    match matrix.stride()[..] {
        [row, 1] if row >= 0 => Ok(2 * row as usize),
        ref strides => Err(ShapeError(format!("{name} has strides {strides:?}, not [any, 1]"))),
    }
}

#[cfg(test)]
#[path = "strain_tests.rs"]
mod tests;
