//! Ground-based interferometers: where they are and how they respond.

use std::f64::consts::PI;

const SPEED_OF_LIGHT: f64 = 299_792_458.0;
/// The ellipsoid Earth model of LIGO-T980044 (m).
const SEMI_MAJOR_AXIS: f64 = 6_378_137.0;
const SEMI_MINOR_AXIS: f64 = 6_356_752.314;
/// The mean radius with which bilby steps from one corner of a triangle to the next (m).
const RADIUS_OF_EARTH: f64 = 6_378_136.6;

/// The name under which a settings file may ask for all three interferometers of the Einstein Telescope.
const TRIANGLE: &str = "ET";
const TRIANGLE_CORNERS: [&str; 3] = ["ET1", "ET2", "ET3"];
const TRIANGLE_ARM_LENGTH: f64 = 10e3;

/// An interferometer: vertex in geocentric coordinates (m) and its response tensor.
#[derive(Debug, Clone, PartialEq)]
pub struct Detector {
    pub name: String,
    pub vertex: [f64; 3],
    pub tensor: [[f64; 3]; 3],
}

impl Detector {
    /// The detector bilby calls by this name (H1, L1, V1, K1, ET1, …), or `None`. `ET` is not one detector but three:
    /// see [`Detector::expand`].
    pub fn by_name(name: &str) -> Option<Detector> {
        if let Some((name, site)) = SITES.iter().find(|(known, _)| *known == name) {
            return Some(site.detector(name));
        }
        let corner = TRIANGLE_CORNERS.iter().position(|known| *known == name)?;
        Some(triangle()[corner].clone())
    }

    /// The detectors that a name in a list of detectors stands for, as bilby's `InterferometerList` reads it: three for
    /// the triangular `ET`, one for any name that [`Detector::by_name`] knows, none for an unknown one.
    pub fn expand(name: &str) -> Vec<Detector> {
        match name {
            TRIANGLE => triangle(),
            _ => Detector::by_name(name).into_iter().collect(),
        }
    }

    /// The names that [`Detector::by_name`] knows.
    pub fn known_names() -> Vec<&'static str> {
        SITES.iter().map(|(name, _)| *name).chain(TRIANGLE_CORNERS).collect()
    }

    /// Antenna patterns (plus, cross) for a source at right ascension `ra`, declination `dec` (rad) and polarization
    /// angle `psi` (rad), at Greenwich mean sidereal time `gmst` (rad).
    ///
    /// The detector tensor is contracted with the polarization tensors of Nishizawa et al. (2009), arXiv:0903.0528.
    pub fn antenna_pattern(&self, ra: f64, dec: f64, psi: f64, gmst: f64) -> (f64, f64) {
        let (sin_phi, cos_phi) = hour_angle_from_greenwich(ra, gmst).sin_cos();
        // The polar angle is pi/2 - dec.
        let (cos_theta, sin_theta) = dec.sin_cos();
        let (sin_psi, cos_psi) = psi.sin_cos();
        let m = [
            -cos_theta * cos_phi * sin_psi + sin_phi * cos_psi,
            -cos_theta * sin_phi * sin_psi - cos_phi * cos_psi,
            sin_theta * sin_psi,
        ];
        let n = [
            -cos_theta * cos_phi * cos_psi - sin_phi * sin_psi,
            -cos_theta * sin_phi * cos_psi + cos_phi * sin_psi,
            sin_theta * cos_psi,
        ];
        // With D symmetric: F+ = m·Dm - n·Dn and Fx = 2 m·Dn.
        let tensor_m = self.tensor.map(|row| dot(&row, &m));
        let tensor_n = self.tensor.map(|row| dot(&row, &n));
        (dot(&m, &tensor_m) - dot(&n, &tensor_n), 2.0 * dot(&m, &tensor_n))
    }

    /// Arrival time at the detector minus arrival time at the geocenter (s).
    pub fn time_delay_from_geocenter(&self, ra: f64, dec: f64, gmst: f64) -> f64 {
        let (sin_phi, cos_phi) = hour_angle_from_greenwich(ra, gmst).sin_cos();
        let (sin_dec, cos_dec) = dec.sin_cos();
        let towards_source = [cos_dec * cos_phi, cos_dec * sin_phi, sin_dec];
        -dot(&self.vertex, &towards_source) / SPEED_OF_LIGHT
    }
}

/// Longitude at which a source of this right ascension stands overhead (rad).
fn hour_angle_from_greenwich(ra: f64, gmst: f64) -> f64 {
    ra - gmst % (2.0 * PI)
}

fn dot(a: &[f64; 3], b: &[f64; 3]) -> f64 {
    a[0] * b[0] + a[1] * b[1] + a[2] * b[2]
}

/// Where an interferometer stands and how its arms lie: angles in degrees (arm azimuths counter-clockwise from East),
/// elevation in m above the ellipsoid, arm tilts above the horizontal in rad.
#[derive(Clone, Copy)]
struct Site {
    latitude: f64,
    longitude: f64,
    elevation: f64,
    x_arm_azimuth: f64,
    y_arm_azimuth: f64,
    x_arm_tilt: f64,
    y_arm_tilt: f64,
}

const fn degrees(degrees: f64, minutes: f64, seconds: f64) -> f64 {
    degrees + minutes / 60.0 + seconds / 3600.0
}

const HANFORD: Site = Site {
    latitude: degrees(46.0, 27.0, 18.528),
    longitude: -degrees(119.0, 24.0, 27.5657),
    elevation: 142.554,
    x_arm_azimuth: 125.9994,
    y_arm_azimuth: 215.9994,
    x_arm_tilt: -6.195e-4,
    y_arm_tilt: 1.25e-5,
};

const VIRGO: Site = Site {
    latitude: degrees(43.0, 37.0, 53.0921),
    longitude: degrees(10.0, 30.0, 16.1878),
    elevation: 51.884,
    x_arm_azimuth: 70.5674,
    y_arm_azimuth: 160.5674,
    x_arm_tilt: 0.0,
    y_arm_tilt: 0.0,
};

/// The first corner of the Einstein Telescope, placed at Virgo's site.
const TRIANGLE_FIRST_CORNER: Site = Site {
    y_arm_azimuth: 130.5674,
    ..VIRGO
};

/// The values of the `.interferometer` files of bilby 2.8.2. They go back to LIGO-T980044 and LIGO-T2000012 (H1, L1),
/// LIGO-T2000158 (A1), arXiv:gr-qc/0008066 (V1, GEO600), LIGO-P1600143 (CE), JGW-T3824 (K1) and arXiv:2007.03128 (NEMO).
const SITES: [(&str, Site); 8] = [
    ("H1", HANFORD),
    (
        "L1",
        Site {
            latitude: degrees(30.0, 33.0, 46.4196),
            longitude: -degrees(90.0, 46.0, 27.2654),
            elevation: -6.574,
            x_arm_azimuth: 197.7165,
            y_arm_azimuth: 287.7165,
            x_arm_tilt: -3.121e-4,
            y_arm_tilt: -6.107e-4,
        },
    ),
    ("V1", VIRGO),
    (
        "K1",
        Site {
            latitude: degrees(36.0, 24.0, 42.69722),
            longitude: degrees(137.0, 18.0, 21.44171),
            elevation: 414.181,
            x_arm_azimuth: 90.0 - 60.39623489157727,
            y_arm_azimuth: 90.0 + 29.60357629670688,
            x_arm_tilt: 0.0031414,
            y_arm_tilt: -0.0036270,
        },
    ),
    (
        "A1",
        Site {
            latitude: degrees(19.0, 36.0, 47.9017),
            longitude: degrees(77.0, 1.0, 51.0997),
            elevation: 440.0,
            x_arm_azimuth: 117.6157,
            y_arm_azimuth: 207.6165,
            x_arm_tilt: 0.0,
            y_arm_tilt: 0.0,
        },
    ),
    // bilby's file differs from H1's in the last digit of this angle.
    (
        "CE",
        Site {
            y_arm_azimuth: 215.994,
            ..HANFORD
        },
    ),
    (
        "GEO600",
        Site {
            latitude: degrees(52.0, 14.0, 42.528),
            longitude: degrees(9.0, 48.0, 25.894),
            elevation: 114.425,
            x_arm_azimuth: 21.6117,
            y_arm_azimuth: 115.9431,
            x_arm_tilt: 0.0,
            y_arm_tilt: 0.0,
        },
    ),
    (
        "NEMO",
        Site {
            latitude: -31.34,
            longitude: 115.91,
            elevation: 0.0,
            x_arm_azimuth: 2.0,
            y_arm_azimuth: 125.0,
            x_arm_tilt: 0.0,
            y_arm_tilt: 0.0,
        },
    ),
];

impl Site {
    fn detector(&self, name: &str) -> Detector {
        let x = self.arm(self.x_arm_azimuth, self.x_arm_tilt);
        let y = self.arm(self.y_arm_azimuth, self.y_arm_tilt);
        let mut tensor = [[0.0; 3]; 3];
        for (i, row) in tensor.iter_mut().enumerate() {
            for (j, element) in row.iter_mut().enumerate() {
                *element = 0.5 * (x[i] * x[j] - y[i] * y[j]);
            }
        }
        Detector {
            name: name.to_string(),
            vertex: self.vertex(),
            tensor,
        }
    }

    /// Geocentric coordinates (m): Anderson et al. (2001), arXiv:gr-qc/0008066, equations B11 to B13.
    fn vertex(&self) -> [f64; 3] {
        let (sin_latitude, cos_latitude) = self.latitude.to_radians().sin_cos();
        let (sin_longitude, cos_longitude) = self.longitude.to_radians().sin_cos();
        let local_radius =
            SEMI_MAJOR_AXIS.powi(2) / (SEMI_MAJOR_AXIS * cos_latitude).hypot(SEMI_MINOR_AXIS * sin_latitude);
        let from_axis = (local_radius + self.elevation) * cos_latitude;
        let flattening = (SEMI_MINOR_AXIS / SEMI_MAJOR_AXIS).powi(2);
        [
            from_axis * cos_longitude,
            from_axis * sin_longitude,
            (flattening * local_radius + self.elevation) * sin_latitude,
        ]
    }

    /// Unit vector along an arm, geocentric.
    fn arm(&self, azimuth: f64, tilt: f64) -> [f64; 3] {
        let (sin_latitude, cos_latitude) = self.latitude.to_radians().sin_cos();
        let (sin_longitude, cos_longitude) = self.longitude.to_radians().sin_cos();
        let (sin_azimuth, cos_azimuth) = azimuth.to_radians().sin_cos();
        let (up, horizontal) = tilt.sin_cos();
        let (east, north) = (horizontal * cos_azimuth, horizontal * sin_azimuth);
        [
            -sin_longitude * east - sin_latitude * cos_longitude * north + cos_latitude * cos_longitude * up,
            cos_longitude * east - sin_latitude * sin_longitude * north + cos_latitude * sin_longitude * up,
            cos_latitude * north + sin_latitude * up,
        ]
    }

    /// The site reached on a sphere after `distance` (m) at a compass `bearing` (degrees), all else equal.
    fn moved(&self, distance: f64, bearing: f64) -> Site {
        let (sin_latitude, cos_latitude) = self.latitude.to_radians().sin_cos();
        let (sin_angle, cos_angle) = (distance / RADIUS_OF_EARTH).sin_cos();
        let (sin_bearing, cos_bearing) = bearing.to_radians().sin_cos();
        let sin_new_latitude = sin_latitude * cos_angle + cos_latitude * sin_angle * cos_bearing;
        let turn = (sin_bearing * sin_angle * cos_latitude).atan2(cos_angle - sin_latitude * sin_new_latitude);
        Site {
            latitude: sin_new_latitude.asin().to_degrees(),
            longitude: self.longitude + turn.to_degrees(),
            ..*self
        }
    }
}

/// The three interferometers of a triangular detector, each corner an arm's length from the one before, as bilby's
/// `TriangularInterferometer` places them.
fn triangle() -> Vec<Detector> {
    let mut site = TRIANGLE_FIRST_CORNER;
    let mut bearing = 90.0 - site.x_arm_azimuth;
    let mut detectors = Vec::with_capacity(TRIANGLE_CORNERS.len());
    for name in TRIANGLE_CORNERS {
        detectors.push(site.detector(name));
        site = site.moved(TRIANGLE_ARM_LENGTH, bearing);
        bearing += 240.0;
        site.x_arm_azimuth += 240.0;
        site.y_arm_azimuth += 240.0;
    }
    detectors
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_expand_to_detectors() {
        for name in Detector::known_names() {
            let expanded = Detector::expand(name);
            assert_eq!(expanded.len(), 1, "{name}");
            assert_eq!(expanded[0].name, name);
        }
        let triangle: Vec<String> = Detector::expand("ET")
            .into_iter()
            .map(|detector| detector.name)
            .collect();
        assert_eq!(triangle, ["ET1", "ET2", "ET3"]);
        assert_eq!(Detector::by_name("ET"), None);
        assert_eq!(Detector::expand("X1"), []);
    }

    #[test]
    fn the_corners_of_the_triangle_are_an_arm_apart() {
        let corners = triangle();
        for (first, second) in [(0, 1), (1, 2), (2, 0)] {
            let difference: Vec<f64> = (0..3)
                .map(|i| corners[first].vertex[i] - corners[second].vertex[i])
                .collect();
            let distance = difference.iter().map(|x| x * x).sum::<f64>().sqrt();
            assert!((distance / TRIANGLE_ARM_LENGTH - 1.0).abs() < 0.01, "{distance}");
        }
    }

    /// Expected values: bilby's `antenna_response` (plus) at GPS 1126259462, for those that physics.json does not have.
    #[test]
    fn further_detectors_are_bilbys() {
        let gmst = crate::gw::time::greenwich_mean_sidereal_time(1_126_259_462.0);
        for (name, expected) in [
            ("A1", -0.7028567859954973),
            ("CE", 0.30197603961145725),
            ("GEO600", -0.13290978954815336),
            ("NEMO", 0.39517228296089657),
        ] {
            let (plus, _) = Detector::by_name(name).unwrap().antenna_pattern(1.0, 0.3, 0.7, gmst);
            assert!((plus - expected).abs() < 1e-9, "{name}: {plus}");
        }
    }
}
