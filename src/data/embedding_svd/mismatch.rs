//! How well a truncated basis represents waveforms it was not made from.

use super::distributed::real_numbers;
use tch::{Kind, Tensor};

/// Dingo tests the basis truncated to multiples of this, and whole.
const INCREMENT: usize = 50;

/// The sizes at which a basis of `size` vectors is tested.
pub(super) fn tested_sizes(size: usize) -> Vec<usize> {
    (INCREMENT..size).step_by(INCREMENT).chain([size]).collect()
}

/// Mismatch between each waveform `[waveforms, bins]` and its projection on the leading vectors of V `[bins, size]`, for
/// each tested size: `[waveforms * sizes]`, waveform by waveform.
///
/// Since V^H V = 1 the overlap of d with its projection is |V^H d|^2 and the projection's norm |V^H d|, so the mismatch
/// is 1 - |V^H d| / |d|.
pub(super) fn mismatches(waveforms: &Tensor, v: &Tensor) -> anyhow::Result<Vec<f64>> {
    let size = v.size2()?.1 as usize;
    let count = waveforms.size2()?.0 as usize;
    if count == 0 {
        return Ok(Vec::new());
    }
    let waveforms = waveforms.f_to_kind(Kind::ComplexDouble)?;
    let coefficients = real_numbers(&waveforms.f_matmul(&v.f_to_device(waveforms.device())?)?)?;
    let norms = waveforms
        .f_view_as_real()?
        .f_square()?
        .f_sum_dim_intlist(&[1i64, 2][..], false, Kind::Double)?;
    let norms = Vec::<f64>::try_from(norms)?;
    let mut mismatches = Vec::new();
    for (coefficients, norm) in coefficients.chunks_exact(2 * size).zip(norms) {
        let mut captured = 0.0;
        let mut done = 0;
        for tested in tested_sizes(size) {
            captured += coefficients[2 * done..2 * tested].iter().map(|c| c * c).sum::<f64>();
            done = tested;
            mismatches.push(1.0 - (captured / norm).sqrt());
        }
    }
    Ok(mismatches)
}

/// Statistics of the mismatches at one size, as Dingo prints them.
pub(in crate::data) fn summary(size: usize, mismatches: &[f64]) -> String {
    let count = mismatches.len() as f64;
    let mean = mismatches.iter().sum::<f64>() / count;
    let variance = mismatches.iter().map(|m| (m - mean).powi(2)).sum::<f64>() / count;
    let mut sorted = mismatches.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = |percent| python_float(percentile(&sorted, percent));
    format!(
        "n = {size}\n  Mean mismatch = {}\n  Standard deviation = {}\n  Max mismatch = {}\n  Median mismatch = {}\n  \
         Percentiles:\n    99    -> {}\n    99.9  -> {}\n    99.99 -> {}",
        python_float(mean),
        python_float(variance.sqrt()),
        at(100.0),
        at(50.0),
        at(99.0),
        at(99.9),
        at(99.99)
    )
}

/// Linear interpolation between the sorted values, as `numpy.percentile`.
fn percentile(sorted: &[f64], percent: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else {
        return f64::NAN;
    };
    let position = percent / 100.0 * last as f64;
    let (below, above) = (sorted[position.floor() as usize], sorted[position.ceil() as usize]);
    below + (above - below) * position.fract()
}

/// A number as Python prints it: `0.0001`, but `1.5e-05`.
fn python_float(number: f64) -> String {
    if number == 0.0 || !number.is_finite() || (1e-4..1e16).contains(&number.abs()) {
        return format!("{number:?}").replace("NaN", "nan");
    }
    let text = format!("{number:e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let (sign, exponent) = exponent.strip_prefix('-').map_or(('+', exponent), |e| ('-', e));
    format!("{digits}e{sign}{exponent:0>2}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_are_numpys() {
        let text = summary(50, &[8e-5, 1e-5, 4e-5, 2e-5]);
        // Printed by numpy, up to the last digits.
        let expected = [
            ("Mean mismatch =", 3.7500000000000003e-05),
            ("Standard deviation =", 2.6809513236909024e-05),
            ("Max mismatch =", 8e-05),
            ("Median mismatch =", 3.0000000000000004e-05),
            ("99    ->", 7.879999999999999e-05),
            ("99.9  ->", 7.988000000000001e-05),
            ("99.99 ->", 7.9988e-05),
        ];
        for (label, value) in expected {
            let line = text.lines().find_map(|line| line.trim().strip_prefix(label)).unwrap();
            let printed: f64 = line.trim().parse().unwrap();
            assert!((printed / value - 1.0).abs() < 1e-14, "{label} {printed}");
        }
        assert!(text.starts_with("n = 50\n  Mean mismatch = 3.75"), "{text}");
    }

    #[test]
    fn numbers_print_as_in_python() {
        let printed = [0.0001, 1.5e-5, 2e-10, 0.25, 1.0, -3e-7, 0.0].map(python_float);
        assert_eq!(printed, ["0.0001", "1.5e-05", "2e-10", "0.25", "1.0", "-3e-07", "0.0"]);
    }

    #[test]
    fn sizes_are_dingos() {
        assert_eq!(tested_sizes(12), [12]);
        assert_eq!(tested_sizes(100), [50, 100]);
        assert_eq!(tested_sizes(120), [50, 100, 120]);
    }
}
