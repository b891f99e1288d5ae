//! The design noise curves that bilby ships, embedded as data.

/// A noise curve: frequencies (Hz, ascending) and amplitude spectral density (1/sqrt(Hz)).
pub struct NoiseCurve {
    pub frequencies: Vec<f64>,
    pub asd: Vec<f64>,
}

impl NoiseCurve {
    /// The curve of that file name, such as `aLIGO_ZERO_DET_high_P_asd.txt`; `None` if bilby ships none such.
    pub fn by_file_name(_name: &str) -> Option<NoiseCurve> {
        todo!()
    }

    /// Linear interpolation at `frequency` (Hz), clamped to the end values as `numpy.interp` does.
    pub fn interpolate(&self, _frequency: f64) -> f64 {
        todo!()
    }
}
