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
    plus: f32,
    cross: f32,
    keep_from: u32,
    keep_to: u32,
    has_noise: u32,
    noise: RandomStream,
}

extern "C" {
    fn dingo_strain_network_inputs(
        level: i32,
        projections: *const RawProjection,
        count: i64,
        first: i64,
        bins: i64,
        whitening: f32,
        asd_scale: f32,
        output: *mut f32,
    );
    fn dingo_strain_clean(projections: *const RawProjection, count: i64, bins: i64, whitening: f32, output: *mut f32);
}

/// Arguments whose shapes or types do not fit together.
#[derive(Debug, thiserror::Error, PartialEq)]
#[error("{0}")]
pub struct ShapeError(String);

/// Projects, whitens, adds noise and packs for the network, in one pass.
///
/// * `plus`, `cross`: polarizations `[samples, bins]` from bin 0 on, complex64;
/// * `projections`: `samples × detectors` of them, detectors innermost;
/// * `output`: `[rows, detectors, 3, bins - first_bin]`, float32. The samples fill the rows from `first_row` on with real
///   part, imaginary part and `asd_scale / asd`.
pub fn network_inputs(
    plus: &Tensor,
    cross: &Tensor,
    projections: &[Projection],
    scaling: &Scaling,
    output: &mut Tensor,
    first_row: usize,
) -> Result<(), ShapeError> {
    network_inputs_at_level(Level::detected(), plus, cross, projections, scaling, output, first_row)
}

fn network_inputs_at_level(
    level: Level,
    plus: &Tensor,
    cross: &Tensor,
    projections: &[Projection],
    scaling: &Scaling,
    output: &mut Tensor,
    first_row: usize,
) -> Result<(), ShapeError> {
    let polarizations = Polarizations::new(plus, cross)?;
    let size = output.size();
    let [rows, detectors, 3, bins] = size[..] else {
        return Err(ShapeError(format!(
            "output has shape {size:?}, not [rows, detectors, 3, bins]"
        )));
    };
    let (rows, detectors, bins) = (rows as usize, detectors as usize, bins as usize);
    if scaling.first_bin + bins != polarizations.bins || first_row + polarizations.samples > rows {
        let first_bin = scaling.first_bin;
        return Err(ShapeError(format!(
            "output {size:?} from row {first_row} and bin {first_bin} on does not fit polarizations {:?}",
            plus.size()
        )));
    }
    check_host(output, Kind::Float, "output")?;
    let raw = polarizations.raw(projections, detectors, bins)?;
    // SAFETY: every pointer was checked to have all bins behind it, and the output all rows; `output` is borrowed
    // mutably, so nobody else writes to it through this handle; `level` is one the processor has.
    unsafe {
        let first = output.data_ptr().cast::<f32>().add(first_row * detectors * 3 * bins);
        dingo_strain_network_inputs(
            level as i32,
            raw.as_ptr(),
            raw.len() as i64,
            scaling.first_bin as i64,
            bins as i64,
            scaling.whitening,
            scaling.asd_scale,
            first,
        );
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
    let mut raw = polarizations.raw(projections, detectors, 0)?;
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
}

impl Polarizations {
    fn new(plus: &Tensor, cross: &Tensor) -> Result<Polarizations, ShapeError> {
        check_host(plus, Kind::ComplexFloat, "plus")?;
        check_host(cross, Kind::ComplexFloat, "cross")?;
        match (&plus.size()[..], &cross.size()[..]) {
            (&[samples, bins], other) if other == [samples, bins] => Ok(Polarizations {
                plus: plus.data_ptr().cast(),
                cross: cross.data_ptr().cast(),
                samples: samples as usize,
                bins: bins as usize,
            }),
            (plus, cross) => Err(ShapeError(format!("polarizations have shapes {plus:?} and {cross:?}"))),
        }
    }

    /// The kernel's view of the projections, which keep at most `kept_bins` bins.
    fn raw(
        &self,
        projections: &[Projection],
        detectors: usize,
        kept_bins: usize,
    ) -> Result<Vec<RawProjection>, ShapeError> {
        if projections.len() != self.samples * detectors {
            let (given, samples) = (projections.len(), self.samples);
            return Err(ShapeError(format!(
                "{given} projections for {samples} samples in {detectors} detectors"
            )));
        }
        if let Some(short) = projections.iter().find(|p| p.asd.len() < self.bins) {
            return Err(ShapeError(format!(
                "an ASD of {} bins for {} bins",
                short.asd.len(),
                self.bins
            )));
        }
        let raw = projections.iter().enumerate().map(|(i, projection)| {
            let offset = 2 * self.bins * (i / detectors);
            let (from, to) = (projection.keep.start.min(kept_bins), projection.keep.end.min(kept_bins));
            RawProjection {
                h_plus: self.plus.wrapping_add(offset),
                h_cross: self.cross.wrapping_add(offset),
                asd: projection.asd.as_ptr(),
                turns: projection.turns,
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
    if tensor.device() != Device::Cpu || tensor.kind() != kind || !tensor.is_contiguous() {
        let (device, found) = (tensor.device(), tensor.kind());
        let contiguous = tensor.is_contiguous();
        return Err(ShapeError(format!(
            "{name} must be contiguous {kind:?} on the host, not {found:?} on {device:?} (contiguous: {contiguous})"
        )));
    }
    Ok(())
}

#[cfg(test)]
#[path = "strain_tests.rs"]
mod tests;
