//! Physics on plain numbers: bilby prior expressions, detectors, time, frequency domains, noise curves.

pub mod cosmology;
pub mod detector;
pub mod domain;
pub mod noise_curve;
mod numerics;
pub mod prior;
pub mod time;
