//! Ground-based interferometers: where they are and how they respond.

/// An interferometer: vertex in geocentric coordinates (m) and its response tensor.
#[derive(Debug, Clone, PartialEq)]
pub struct Detector {
    pub name: String,
    pub vertex: [f64; 3],
    pub tensor: [[f64; 3]; 3],
}

impl Detector {
    /// The detector bilby calls by this name (H1, L1, V1, K1, ET1, …), or `None`.
    pub fn by_name(_name: &str) -> Option<Detector> {
        todo!()
    }

    /// The names that [`Detector::by_name`] knows.
    pub fn known_names() -> Vec<&'static str> {
        todo!()
    }

    /// Antenna patterns (plus, cross) for a source at right ascension `ra`, declination `dec` (rad) and polarization
    /// angle `psi` (rad), at Greenwich mean sidereal time `gmst` (rad).
    pub fn antenna_pattern(&self, _ra: f64, _dec: f64, _psi: f64, _gmst: f64) -> (f64, f64) {
        todo!()
    }

    /// Arrival time at the detector minus arrival time at the geocenter (s).
    pub fn time_delay_from_geocenter(&self, _ra: f64, _dec: f64, _gmst: f64) -> f64 {
        todo!()
    }
}
