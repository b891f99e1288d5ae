//! GPS time and sidereal time.

use std::f64::consts::PI;

/// GPS seconds at which a leap second had just been inserted into UTC. The last one was at the end of 2016.
const LEAP_SECONDS: [i64; 18] = [
    46_828_800,
    78_364_801,
    109_900_802,
    173_059_203,
    252_028_804,
    315_187_205,
    346_723_206,
    393_984_007,
    425_520_008,
    457_056_009,
    504_489_610,
    551_750_411,
    599_184_012,
    820_108_813,
    914_803_214,
    1_025_136_015,
    1_119_744_016,
    1_167_264_017,
];

const SECONDS_PER_DAY: f64 = 86_400.0;
const DAYS_PER_CENTURY: f64 = 36_525.0;
/// Julian day of the GPS epoch, 1980-01-06 00:00 UTC.
const JULIAN_DAY_OF_GPS_EPOCH: f64 = 2_444_244.5;
/// Julian day of the epoch J2000.0.
const JULIAN_DAY_OF_J2000: f64 = 2_451_545.0;

/// Greenwich mean sidereal time in radians (not reduced modulo 2 pi) at a GPS time in seconds, as LAL computes it
/// (`XLALGreenwichMeanSiderealTime`): the whole and the fractional seconds are carried separately, so that the rounding
/// of the Julian day (some 1e-5 s) touches only the former.
pub fn greenwich_mean_sidereal_time(gps: f64) -> f64 {
    let whole_seconds = gps.floor();
    let utc_seconds = whole_seconds - leap_seconds(whole_seconds as i64) as f64;
    let julian_day = JULIAN_DAY_OF_GPS_EPOCH + utc_seconds / SECONDS_PER_DAY;

    // Centuries since J2000.0, high and low part.
    let high = (julian_day - JULIAN_DAY_OF_J2000) / DAYS_PER_CENTURY;
    let low = (gps - whole_seconds) / (DAYS_PER_CENTURY * SECONDS_PER_DAY);
    let centuries = high + low;

    // Polynomial of the 1982 IAU definition, in seconds of sidereal time.
    let mut sidereal = (-6.2e-6 * centuries + 0.093104) * centuries * centuries + 67_310.548_41;
    sidereal += 8_640_184.812_866 * low;
    sidereal += 3_155_760_000.0 * low;
    sidereal += 8_640_184.812_866 * high;
    sidereal += 3_155_760_000.0 * high;
    sidereal * PI / 43_200.0
}

/// Leap seconds inserted between the GPS epoch and this GPS second.
fn leap_seconds(gps: i64) -> usize {
    LEAP_SECONDS.partition_point(|&leap| leap <= gps)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leap_seconds_count_from_their_own_second_on() {
        assert_eq!(leap_seconds(0), 0);
        assert_eq!(leap_seconds(46_828_799), 0);
        assert_eq!(leap_seconds(46_828_800), 1);
        assert_eq!(leap_seconds(1_167_264_016), 17);
        assert_eq!(leap_seconds(1_400_000_000), 18);
    }

    #[test]
    fn a_sidereal_day_is_one_turn() {
        let start = 1_126_259_462.25;
        let turn = greenwich_mean_sidereal_time(start + 86_164.090_5) - greenwich_mean_sidereal_time(start);
        assert!((turn - 2.0 * PI).abs() < 1e-7, "{turn}");
    }
}
