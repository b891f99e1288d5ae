//! Random cropping of the band, so that the network learns to work with narrower ones.

use std::ops::Range;

use crate::data::random::{below, SampleRandom};
use crate::data::DataError;
use crate::gw::domain::UniformFrequencyDomain;
use crate::settings::StrainCropping;

/// Dingo's `random_strain_cropping`: a new lower end uniform in the bins from the domain's f_min to `f_min_upper`, a new
/// upper end uniform in those from `f_max_lower` to f_max, each applied with `cropping_probability`.
#[derive(Debug, Clone, PartialEq)]
pub struct Cropping {
    /// The largest lower end and the smallest upper end that are drawn, as bins from f_min on.
    lower_max: usize,
    upper_min: usize,
    bins: usize,
    probability: f64,
    independent_detectors: bool,
    independent_ends: bool,
}

impl Cropping {
    /// Errors name the key: the frequencies must be inside the domain, the lower one below the upper one, and the
    /// probability in [0, 1].
    pub fn new(settings: &StrainCropping, domain: &UniformFrequencyDomain) -> Result<Cropping, DataError> {
        let error = |name: &str, message: String| {
            Err(DataError::Setting {
                key: format!("data.random_strain_cropping.{name}"),
                message,
            })
        };
        let frequencies = &domain.sample_frequencies()[domain.min_index()..];
        let bins = frequencies.len();
        let (f_min, f_max) = (f64::from(frequencies[0]), f64::from(frequencies[bins - 1]));
        for (name, value) in [
            ("f_min_upper", settings.f_min_upper),
            ("f_max_lower", settings.f_max_lower),
        ] {
            if let Some(value) = value.filter(|value| !(f_min < *value && *value < f_max)) {
                return error(
                    name,
                    format!("{value} Hz is not between the domain's {f_min} and {f_max} Hz"),
                );
            }
        }
        if let (Some(lower), Some(upper)) = (settings.f_min_upper, settings.f_max_lower) {
            if lower >= upper {
                return error(
                    "f_min_upper",
                    format!("{lower} Hz is not below f_max_lower, {upper} Hz"),
                );
            }
        }
        let probability = settings.cropping_probability;
        if !(0.0..=1.0).contains(&probability) {
            return error("cropping_probability", format!("{probability} is not between 0 and 1"));
        }
        let distance = |k: usize, f: f64| (f - f64::from(frequencies[k])).abs();
        // The nearest bin, the lower one of two.
        let nearest = |f: f64| {
            (0..bins)
                .min_by(|&a, &b| distance(a, f).total_cmp(&distance(b, f)))
                .unwrap_or(0)
        };
        Ok(Cropping {
            lower_max: settings.f_min_upper.map_or(0, nearest),
            upper_min: settings.f_max_lower.map_or(bins - 1, nearest),
            bins,
            probability,
            independent_detectors: settings.independent_detectors,
            independent_ends: settings.independent_lower_upper,
        })
    }

    /// The bins from f_min on that are kept of each detector; `random` gives the numbers of a detector.
    pub fn draw(&self, detectors: usize, random: impl Fn(usize) -> SampleRandom) -> Vec<Range<usize>> {
        let draws = if self.independent_detectors { detectors } else { 1 };
        let mut kept: Vec<_> = (0..draws).map(|detector| self.draw_one(&random(detector))).collect();
        kept.resize(detectors, kept[0].clone());
        kept
    }

    fn draw_one(&self, random: &SampleRandom) -> Range<usize> {
        let [lower, upper] = random.bits(0);
        let [crop_lower, crop_upper] = random.uniforms(1).map(|u| u <= self.probability);
        let crop_upper = if self.independent_ends { crop_upper } else { crop_lower };
        let start = if crop_lower {
            below(lower, self.lower_max as u64 + 1) as usize
        } else {
            0
        };
        let last = self.upper_min + below(upper, (self.bins - self.upper_min) as u64) as usize;
        start..if crop_upper { last + 1 } else { self.bins }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::random::Purpose;

    fn domain() -> UniformFrequencyDomain {
        UniformFrequencyDomain {
            f_min: 20.0,
            f_max: 128.0,
            delta_f: 0.25,
        }
    }

    fn settings(probability: f64) -> StrainCropping {
        StrainCropping {
            cropping_probability: probability,
            f_min_upper: Some(32.0),
            f_max_lower: Some(90.0),
            independent_detectors: true,
            independent_lower_upper: true,
        }
    }

    fn draws(settings: &StrainCropping) -> Vec<Vec<Range<usize>>> {
        let cropping = Cropping::new(settings, &domain()).expect("valid");
        let random = |sample| move |lane| SampleRandom::new(1, Purpose::Cropping, lane, 0, sample);
        (0..20_000).map(|sample| cropping.draw(2, random(sample))).collect()
    }

    fn share(draws: &[Vec<Range<usize>>], test: impl Fn(&[Range<usize>]) -> bool) -> f64 {
        draws.iter().filter(|kept| test(kept)).count() as f64 / draws.len() as f64
    }

    /// 20 to 128 Hz are 433 bins, 32 Hz is bin 48 of them and 90 Hz bin 280.
    #[test]
    fn ends_are_uniform_over_their_ranges() {
        let draws = draws(&settings(1.0));
        let starts: Vec<usize> = draws.iter().map(|kept| kept[0].start).collect();
        let ends: Vec<usize> = draws.iter().map(|kept| kept[1].end).collect();
        assert_eq!((starts.iter().min(), starts.iter().max()), (Some(&0), Some(&48)));
        assert_eq!((ends.iter().min(), ends.iter().max()), (Some(&281), Some(&433)));
        let mean = |values: &[usize]| values.iter().sum::<usize>() as f64 / values.len() as f64;
        assert!((mean(&starts) - 24.0).abs() < 0.5 && (mean(&ends) - 357.0).abs() < 1.5);
    }

    #[test]
    fn probabilities_apply_to_ends_and_detectors_as_asked() {
        let cropped = |kept: &Range<usize>| [kept.start > 0, kept.end < 433];
        // A cropped end may also land on the domain's own.
        let (lower, upper) = (0.7 * 48.0 / 49.0, 0.7 * 152.0 / 153.0);
        let independent = draws(&settings(0.7));
        assert!((share(&independent, |kept| cropped(&kept[0])[0]) - lower).abs() < 0.015);
        assert!((share(&independent, |kept| cropped(&kept[1])[1]) - upper).abs() < 0.015);
        assert!((share(&independent, |kept| cropped(&kept[0]) == [true, true]) - lower * upper).abs() < 0.015);
        assert!(
            (share(&independent, |kept| cropped(&kept[0])[0] && cropped(&kept[1])[0]) - lower * lower).abs() < 0.015
        );

        let together = draws(&StrainCropping {
            independent_lower_upper: false,
            ..settings(0.7)
        });
        assert!((share(&together, |kept| kept[0] == (0..433)) - 0.3).abs() < 0.015);
        let same = draws(&StrainCropping {
            independent_detectors: false,
            ..settings(0.7)
        });
        assert!(same.iter().all(|kept| kept[0] == kept[1]));
        assert_eq!(share(&draws(&settings(0.0)), |kept| *kept == [0..433, 0..433]), 1.0);
    }

    #[test]
    fn bad_values_name_their_key() {
        for (bad, key) in [
            (
                StrainCropping {
                    f_min_upper: Some(20.0),
                    ..settings(1.0)
                },
                "f_min_upper",
            ),
            (
                StrainCropping {
                    f_max_lower: Some(128.0),
                    ..settings(1.0)
                },
                "f_max_lower",
            ),
            (
                StrainCropping {
                    f_max_lower: Some(f64::NAN),
                    ..settings(1.0)
                },
                "f_max_lower",
            ),
            (
                StrainCropping {
                    f_min_upper: Some(95.0),
                    ..settings(1.0)
                },
                "f_min_upper",
            ),
            (settings(1.1), "cropping_probability"),
        ] {
            let message = Cropping::new(&bad, &domain()).expect_err(key).to_string();
            assert!(
                message.starts_with(&format!("data.random_strain_cropping.{key}: ")),
                "{message}"
            );
        }
    }
}
