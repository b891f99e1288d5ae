//! The design noise curves that bilby ships, embedded as data.

use super::domain::UniformFrequencyDomain;

/// Below f_min Dingo puts this amplitude spectral density (1/sqrt(Hz)) when it whitens or unwhitens a dataset.
const ASD_BELOW_F_MIN: f64 = 1e-22;

/// A noise curve: frequencies (Hz, ascending) and amplitude spectral density (1/sqrt(Hz)).
#[derive(Debug, Clone, PartialEq)]
pub struct NoiseCurve {
    pub frequencies: Vec<f64>,
    pub asd: Vec<f64>,
}

/// Why a text is no noise curve, or a noise curve cannot serve.
#[derive(Debug, thiserror::Error, PartialEq)]
pub enum NoiseCurveError {
    #[error("line {line} ('{text}') is not two numbers, frequency (Hz) and amplitude spectral density (1/sqrt(Hz))")]
    NotTwoNumbers { line: usize, text: String },
    #[error("line {line}: {problem}")]
    Value { line: usize, problem: &'static str },
    #[error("the noise curve has {0} points, but needs at least 2")]
    TooShort(usize),
    #[error("the noise curve covers {first} Hz to {last} Hz, but the domain needs {f_min} Hz to {f_max} Hz")]
    TooNarrow {
        first: f64,
        last: f64,
        f_min: f64,
        f_max: f64,
    },
}

macro_rules! embedded {
    ($($name:literal),* $(,)?) => { [$(($name, include_str!(concat!("noise_curves/", $name)))),*] };
}

/// File names and texts; noise_curves/README.md says what is there and what is not.
static EMBEDDED: [(&str, &str); 15] = embedded![
    "AdV_asd.txt",
    "Aplus_asd.txt",
    "CE_asd.txt",
    "CE_wb_asd.txt",
    "ET_B_asd.txt",
    "ET_D_asd.txt",
    "GEO600_S6e_asd.txt",
    "KAGRA_design_asd.txt",
    "LIGO_srd_asd.txt",
    "aLIGO_O4_high_asd.txt",
    "aLIGO_ZERO_DET_high_P_asd.txt",
    "aLIGO_early_asd.txt",
    "aLIGO_early_high_asd.txt",
    "aLIGO_late_asd.txt",
    "aLIGO_mid_asd.txt",
];

impl NoiseCurve {
    /// The curve of that file name, such as `aLIGO_ZERO_DET_high_P_asd.txt`; `None` if bilby ships none such, and for
    /// its `*_psd.txt` files: what Dingo calls `whitening` is read as an amplitude spectral density.
    pub fn by_file_name(name: &str) -> Option<NoiseCurve> {
        // bilby ships this one under two names.
        let name = if name == "aplus.txt" { "Aplus_asd.txt" } else { name };
        let (_, text) = EMBEDDED.iter().find(|(known, _)| *known == name)?;
        NoiseCurve::parse(text).ok()
    }

    /// The names that [`NoiseCurve::by_file_name`] knows.
    pub fn known_names() -> Vec<&'static str> {
        EMBEDDED.iter().map(|(name, _)| *name).collect()
    }

    /// Reads a user's own curve: two columns, frequency and amplitude spectral density; `#` starts a comment.
    /// Frequencies must ascend, and densities be positive.
    pub fn parse(text: &str) -> Result<NoiseCurve, NoiseCurveError> {
        let mut curve = NoiseCurve {
            frequencies: Vec::new(),
            asd: Vec::new(),
        };
        for (line, row) in (1..).zip(text.lines()) {
            let row = row.split('#').next().unwrap_or_default().trim();
            if row.is_empty() {
                continue;
            }
            let (frequency, asd) = two_numbers(row).ok_or_else(|| NoiseCurveError::NotTwoNumbers {
                line,
                text: row.to_string(),
            })?;
            if !frequency.is_finite() || curve.frequencies.last().is_some_and(|&last| frequency <= last) {
                return Err(NoiseCurveError::Value {
                    line,
                    problem: "frequencies must be finite and ascend",
                });
            }
            if !(asd.is_finite() && asd > 0.0) {
                return Err(NoiseCurveError::Value {
                    line,
                    problem: "the density must be finite and above 0",
                });
            }
            curve.frequencies.push(frequency);
            curve.asd.push(asd);
        }
        match curve.frequencies.len() {
            length if length < 2 => Err(NoiseCurveError::TooShort(length)),
            _ => Ok(curve),
        }
    }

    /// Linear interpolation at `frequency` (Hz); infinite outside of the curve's range, as in Dingo.
    pub fn interpolate(&self, frequency: f64) -> f64 {
        let above = self.frequencies.partition_point(|&known| known < frequency);
        match (self.frequencies.get(above), above) {
            (Some(&known), _) if known == frequency => self.asd[above],
            (None, _) | (_, 0) => f64::INFINITY,
            (Some(&right), _) => {
                let left = self.frequencies[above - 1];
                let slope = (self.asd[above] - self.asd[above - 1]) / (right - left);
                self.asd[above - 1] + slope * (frequency - left)
            }
        }
    }

    /// The curve on the bins of a domain, `[num_bins]`, with 1e-22 below f_min: what Dingo divides a dataset's
    /// polarizations by before it compresses them, and multiplies them by afterwards. An error if the curve does not
    /// cover f_min to f_max.
    pub fn on_domain(&self, domain: &UniformFrequencyDomain) -> Result<Vec<f64>, NoiseCurveError> {
        let min_index = domain.min_index();
        let value = |(index, frequency): (usize, f32)| match index < min_index {
            true => ASD_BELOW_F_MIN,
            false => self.interpolate(frequency.into()),
        };
        let values: Vec<f64> = domain.sample_frequencies().into_iter().enumerate().map(value).collect();
        if values.iter().any(|value| value.is_infinite()) {
            let (first, last) = (self.frequencies[0], self.frequencies[self.frequencies.len() - 1]);
            return Err(NoiseCurveError::TooNarrow {
                first,
                last,
                f_min: domain.f_min,
                f_max: domain.f_max,
            });
        }
        Ok(values)
    }
}

fn two_numbers(row: &str) -> Option<(f64, f64)> {
    let mut columns = row.split_whitespace();
    let numbers = (columns.next()?.parse().ok()?, columns.next()?.parse().ok()?);
    columns.next().is_none().then_some(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_embedded_curve_can_be_read() {
        for name in NoiseCurve::known_names() {
            assert!(NoiseCurve::by_file_name(name).is_some(), "{name}");
        }
        assert_eq!(
            NoiseCurve::by_file_name("aplus.txt"),
            NoiseCurve::by_file_name("Aplus_asd.txt")
        );
        assert_eq!(NoiseCurve::by_file_name("aLIGO_early_psd.txt"), None);
    }

    /// Expected values: Dingo 0.10.3's `WhitenFixedASD`.
    #[test]
    fn the_whitening_curve_is_dingos() {
        let domain = UniformFrequencyDomain::new(20.0, 512.0, 0.25).unwrap();
        let curve = NoiseCurve::by_file_name("aLIGO_ZERO_DET_high_P_asd.txt").unwrap();
        let asd = curve.on_domain(&domain).unwrap();
        assert_eq!(asd.len(), 2049);
        assert_eq!((asd[0], asd[79]), (1e-22, 1e-22));
        for (index, expected) in [
            (80, 1.9142678619869194e-23),
            (401, 3.98710768841097e-24),
            (2048, 4.039315687435411e-24),
        ] {
            assert!(
                (asd[index] / expected - 1.0).abs() < 1e-13,
                "bin {index}: {} {expected}",
                asd[index]
            );
        }
    }

    #[test]
    fn a_domain_beyond_the_curve_is_refused() {
        let curve = NoiseCurve::by_file_name("aLIGO_ZERO_DET_high_P_asd.txt").unwrap();
        for (f_min, f_max) in [(20.0, 8192.0), (8.0, 1024.0)] {
            let domain = UniformFrequencyDomain::new(f_min, f_max, 1.0).unwrap();
            assert!(matches!(
                curve.on_domain(&domain),
                Err(NoiseCurveError::TooNarrow { .. })
            ));
        }
    }

    #[test]
    fn interpolation_is_linear_and_ends_with_the_curve() {
        let curve = NoiseCurve::parse("# f asd\n1 10.\n3 20. # comment\n\n4 5.\n").unwrap();
        for (frequency, expected) in [(1.0, 10.0), (1.5, 12.5), (3.0, 20.0), (3.5, 12.5), (4.0, 5.0)] {
            assert_eq!(curve.interpolate(frequency), expected);
        }
        assert_eq!(
            (curve.interpolate(0.99), curve.interpolate(4.01)),
            (f64::INFINITY, f64::INFINITY)
        );
    }

    #[test]
    fn what_is_no_curve_is_an_error_with_its_line() {
        let error = |text| NoiseCurve::parse(text).unwrap_err();
        assert_eq!(
            error("1 2\n2 x"),
            NoiseCurveError::NotTwoNumbers {
                line: 2,
                text: "2 x".to_string()
            }
        );
        assert!(matches!(
            error("1 2 3\n"),
            NoiseCurveError::NotTwoNumbers { line: 1, .. }
        ));
        assert!(matches!(error("2 1\n1 1"), NoiseCurveError::Value { line: 2, .. }));
        assert!(matches!(error("2 1\n3 0"), NoiseCurveError::Value { line: 2, .. }));
        assert_eq!(error("1 1"), NoiseCurveError::TooShort(1));
    }
}
