//! GPS time and sidereal time.

/// Greenwich mean sidereal time in radians (not reduced modulo 2 pi) at a GPS time in seconds, as LAL computes it.
pub fn greenwich_mean_sidereal_time(_gps: f64) -> f64 {
    todo!()
}
