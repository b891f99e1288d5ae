//! The detectors of an analysis at their reference time.

use crate::data::DataError;
use crate::gw::detector::Detector;
use crate::gw::time::greenwich_mean_sidereal_time;

/// Detectors in the settings' order, and how they are turned at the reference time. As in Dingo the Earth does not turn on:
/// antenna patterns and delays are those at the reference time for all arrival times.
#[derive(Debug, Clone)]
pub struct DetectorNetwork {
    detectors: Vec<Detector>,
    gmst: f64,
}

impl DetectorNetwork {
    /// From `data.detectors` and `data.ref_time` (GPS seconds). A triangular detector's name stands for its three
    /// interferometers, as in bilby.
    pub fn new(names: &[String], ref_time: f64) -> Result<DetectorNetwork, DataError> {
        let setting = |message: String| DataError::Setting {
            key: "data.detectors".into(),
            message,
        };
        let mut detectors = Vec::new();
        for name in names {
            let found = Detector::expand(name);
            if found.is_empty() {
                let known = Detector::known_names().join(", ");
                return Err(setting(format!("{name:?} is not a known detector; known are {known}")));
            }
            detectors.extend(found);
        }
        // A detector's number is a byte of the random numbers' counter.
        if detectors.is_empty() || detectors.len() > 255 {
            return Err(setting(format!("{} detectors; 1 to 255 are possible", detectors.len())));
        }
        Ok(DetectorNetwork {
            detectors,
            gmst: greenwich_mean_sidereal_time(ref_time),
        })
    }

    pub fn len(&self) -> usize {
        self.detectors.len()
    }

    /// Never true: there is at least one detector.
    pub fn is_empty(&self) -> bool {
        self.detectors.is_empty()
    }

    pub fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.detectors.iter().map(|detector| detector.name.as_str())
    }

    /// The detector whose arrival time this parameter is (`H1_time`), if it is one.
    pub fn of_time_parameter(&self, parameter: &str) -> Option<usize> {
        let name = parameter.strip_suffix("_time")?;
        self.names().position(|detector| detector == name)
    }

    /// Arrival time (s, relative to the reference time) at detector `index` of a source at `ra`, `dec` (rad) whose signal
    /// reaches the geocenter at `geocent_time` (s, likewise).
    pub fn arrival_time(&self, index: usize, ra: f64, dec: f64, geocent_time: f64) -> f64 {
        geocent_time + self.detectors[index].time_delay_from_geocenter(ra, dec, self.gmst)
    }

    /// Antenna patterns (plus, cross) of detector `index`.
    pub fn antenna_pattern(&self, index: usize, ra: f64, dec: f64, psi: f64) -> (f64, f64) {
        self.detectors[index].antenna_pattern(ra, dec, psi, self.gmst)
    }
}
