//! Frequency domains.

/// Evenly spaced bins from 0 to `f_max` (Hz); data below `f_min` is masked.
#[derive(Debug, Clone, PartialEq)]
pub struct UniformFrequencyDomain {
    pub f_min: f64,
    pub f_max: f64,
    pub delta_f: f64,
}

/// What is wrong with a domain or its update.
#[derive(Debug, thiserror::Error, PartialEq)]
pub enum DomainError {
    #[error("{0}")]
    Invalid(String),
}

impl UniformFrequencyDomain {
    /// Bins from 0 to f_max, both included.
    pub fn num_bins(&self) -> usize {
        (self.f_max / self.delta_f).round() as usize + 1
    }

    /// Index of the first bin at or above f_min.
    pub fn min_index(&self) -> usize {
        (self.f_min / self.delta_f).round() as usize
    }

    /// Standard deviation of white noise per real and imaginary part: sqrt(window_factor / (4 delta_f)), window factor 1.
    pub fn noise_std(&self) -> f64 {
        todo!()
    }

    /// A narrower range on the same grid. Errors when outside the present range or off the grid.
    pub fn update(&self, _f_min: Option<f64>, _f_max: Option<f64>) -> Result<UniformFrequencyDomain, DomainError> {
        todo!()
    }
}
