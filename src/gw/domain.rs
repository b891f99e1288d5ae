//! Frequency domains.

/// Evenly spaced bins from 0 to `f_max` (Hz); data below `f_min` is masked. Dingo's `UniformFrequencyDomain`.
#[derive(Debug, Clone, PartialEq)]
pub struct UniformFrequencyDomain {
    pub f_min: f64,
    pub f_max: f64,
    pub delta_f: f64,
}

/// How far off a multiple of delta_f, in units of it, f_max may be: room for a delta_f with few digits (0.3333333).
const GRID_TOLERANCE: f64 = 1e-3;

/// What is wrong with a domain or its update.
#[derive(Debug, thiserror::Error, PartialEq)]
pub enum DomainError {
    #[error("{name} is {value}, but must be {allowed}")]
    Value {
        name: &'static str,
        value: f64,
        allowed: &'static str,
    },
    #[error("f_min ({f_min} Hz) must be below f_max ({f_max} Hz)")]
    EmptyRange { f_min: f64, f_max: f64 },
    #[error(
        "the requested range [{f_min}, {f_max}] Hz lies outside the domain's range [{domain_f_min}, {domain_f_max}] Hz"
    )]
    OutsideRange {
        f_min: f64,
        f_max: f64,
        domain_f_min: f64,
        domain_f_max: f64,
    },
    #[error(
        "{name} is {value} Hz, which is not on the domain's grid of {delta_f} Hz (the nearest point is {nearest} Hz)"
    )]
    OffGrid {
        name: &'static str,
        value: f64,
        delta_f: f64,
        nearest: f64,
    },
}

impl UniformFrequencyDomain {
    /// A domain whose values make sense: finite, `0 <= f_min < f_max`, `delta_f > 0`, and `f_max` on the grid.
    pub fn new(f_min: f64, f_max: f64, delta_f: f64) -> Result<UniformFrequencyDomain, DomainError> {
        let check = |name, value: f64, valid: bool, allowed| match valid && value.is_finite() {
            true => Ok(()),
            false => Err(DomainError::Value { name, value, allowed }),
        };
        check("f_min", f_min, f_min >= 0.0, "a frequency in Hz, not negative")?;
        check("f_max", f_max, f_max > 0.0, "a frequency in Hz, above 0")?;
        check("delta_f", delta_f, delta_f > 0.0, "a bin width in Hz, above 0")?;
        if f_min >= f_max {
            return Err(DomainError::EmptyRange { f_min, f_max });
        }
        let domain = UniformFrequencyDomain { f_min, f_max, delta_f };
        let nearest = domain.max_index() as f64 * delta_f;
        if (nearest - f_max).abs() > GRID_TOLERANCE * delta_f {
            return Err(DomainError::OffGrid {
                name: "f_max",
                value: f_max,
                delta_f,
                nearest,
            });
        }
        Ok(domain)
    }

    /// Bins from 0 to f_max, both included.
    pub fn num_bins(&self) -> usize {
        self.max_index() + 1
    }

    /// Index of the bin at f_min, the first that is not masked.
    pub fn min_index(&self) -> usize {
        self.nearest_index(self.f_min)
    }

    /// Index of the bin at f_max, the last.
    pub fn max_index(&self) -> usize {
        self.nearest_index(self.f_max)
    }

    /// Frequency of a bin (Hz), in single precision as Dingo keeps it.
    pub fn sample_frequency(&self, index: usize) -> f32 {
        (index as f64 * self.spacing()) as f32
    }

    /// Frequencies of all bins (Hz), `[num_bins]`, in single precision as Dingo keeps them.
    pub fn sample_frequencies(&self) -> Vec<f32> {
        (0..self.num_bins()).map(|index| self.sample_frequency(index)).collect()
    }

    /// Standard deviation of white noise per real and imaginary part: sqrt(window_factor / (4 delta_f)), window factor 1.
    pub fn noise_std(&self) -> f64 {
        1.0 / (4.0 * self.delta_f).sqrt()
    }

    /// A narrower range on the same grid. Errors when outside the present range or off the grid.
    pub fn update(&self, f_min: Option<f64>, f_max: Option<f64>) -> Result<UniformFrequencyDomain, DomainError> {
        let (f_min, f_max) = (f_min.unwrap_or(self.f_min), f_max.unwrap_or(self.f_max));
        if f_min >= f_max || f_min.is_nan() || f_max.is_nan() {
            return Err(DomainError::EmptyRange { f_min, f_max });
        }
        if !(self.f_min <= f_min && f_max <= self.f_max) {
            let (domain_f_min, domain_f_max) = (self.f_min, self.f_max);
            return Err(DomainError::OutsideRange {
                f_min,
                f_max,
                domain_f_min,
                domain_f_max,
            });
        }
        self.check_on_grid("f_min", f_min)?;
        self.check_on_grid("f_max", f_max)?;
        Ok(UniformFrequencyDomain {
            f_min,
            f_max,
            delta_f: self.delta_f,
        })
    }

    fn nearest_index(&self, frequency: f64) -> usize {
        (frequency / self.delta_f).round_ties_even() as usize
    }

    /// `delta_f`, up to the rounding by which the last bin is exactly at f_max.
    fn spacing(&self) -> f64 {
        self.f_max / self.max_index() as f64
    }

    /// As Dingo, compares in single precision: 20.1 Hz is on a grid of 0.1 Hz.
    fn check_on_grid(&self, name: &'static str, value: f64) -> Result<(), DomainError> {
        let nearest = self.sample_frequency(self.nearest_index(value));
        match nearest == value as f32 {
            true => Ok(()),
            false => Err(DomainError::OffGrid {
                name,
                value,
                delta_f: self.delta_f,
                nearest: nearest.into(),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn domain() -> UniformFrequencyDomain {
        UniformFrequencyDomain::new(20.0, 1024.0, 0.25).unwrap()
    }

    #[test]
    fn bins_are_counted_from_zero_to_f_max() {
        let domain = domain();
        assert_eq!(
            (domain.num_bins(), domain.min_index(), domain.max_index()),
            (4097, 80, 4096)
        );
        let frequencies = domain.sample_frequencies();
        assert_eq!(
            (frequencies.len(), frequencies[0], frequencies[80], frequencies[4096]),
            (4097, 0.0, 20.0, 1024.0)
        );
        assert_eq!(domain.noise_std(), 1.0);
    }

    #[test]
    fn update_narrows_the_range() {
        let narrower = domain().update(Some(25.5), None).unwrap();
        assert_eq!(
            narrower,
            UniformFrequencyDomain {
                f_min: 25.5,
                f_max: 1024.0,
                delta_f: 0.25
            }
        );
        assert_eq!(narrower.update(None, Some(100.0)).unwrap().num_bins(), 401);
        assert_eq!(domain().update(None, None).unwrap(), domain());
    }

    #[test]
    fn a_decimal_grid_is_compared_in_single_precision() {
        let domain = UniformFrequencyDomain::new(20.0, 1024.0, 0.1).unwrap();
        assert_eq!(domain.update(Some(20.1), Some(511.3)).unwrap().num_bins(), 5114);
    }

    #[test]
    fn update_refuses_what_dingo_refuses() {
        let update = |f_min, f_max| domain().update(f_min, f_max).unwrap_err();
        assert!(matches!(update(Some(19.75), None), DomainError::OutsideRange { .. }));
        assert!(matches!(update(None, Some(1024.25)), DomainError::OutsideRange { .. }));
        assert!(matches!(update(Some(30.0), Some(30.0)), DomainError::EmptyRange { .. }));
        assert!(matches!(update(Some(f64::NAN), None), DomainError::EmptyRange { .. }));
        let error = update(Some(25.1), None);
        assert!(
            matches!(
                error,
                DomainError::OffGrid {
                    name: "f_min",
                    nearest: 25.0,
                    ..
                }
            ),
            "{error}"
        );
        assert!(matches!(
            update(None, Some(512.3)),
            DomainError::OffGrid { name: "f_max", .. }
        ));
    }

    #[test]
    fn nonsense_is_no_domain() {
        for (f_min, f_max, delta_f) in [
            (-1.0, 10.0, 1.0),
            (0.0, f64::INFINITY, 1.0),
            (0.0, 10.0, 0.0),
            (10.0, 10.0, 1.0),
            (0.0, 10.5, 1.0),
        ] {
            assert!(
                UniformFrequencyDomain::new(f_min, f_max, delta_f).is_err(),
                "{f_min} {f_max} {delta_f}"
            );
        }
    }
}
