//! Distribution functions.

use libm::erfc;
use std::f64::consts::SQRT_2;

pub(in crate::gw) use libm::lgamma as ln_gamma;

/// Where the series and continued fractions below stop: a relative change that no longer shows.
const CONVERGED: f64 = 1e-16;
const MAX_TERMS: usize = 10_000;

/// Distribution function of the standard normal distribution.
pub(in crate::gw) fn normal_cdf(x: f64) -> f64 {
    0.5 * erfc(-x / SQRT_2)
}

/// Inverse of [`normal_cdf`], to about 1e-16 relative: Wichura (1988), algorithm AS 241.
pub(in crate::gw) fn normal_quantile(p: f64) -> f64 {
    const CENTER: [[f64; 8]; 2] = [
        [
            3.387_132_872_796_366_5,
            133.141_667_891_784_38,
            1_971.590_950_306_551_3,
            13_731.693_765_509_46,
            45_921.953_931_549_87,
            67_265.770_927_008_7,
            33_430.575_583_588_13,
            2_509.080_928_730_122_7,
        ],
        [
            1.0,
            42.313_330_701_600_91,
            687.187_007_492_057_9,
            5_394.196_021_424_751,
            21_213.794_301_586_597,
            39_307.895_800_092_71,
            28_729.085_735_721_943,
            5_226.495_278_852_854,
        ],
    ];
    const NEAR_TAIL: [[f64; 8]; 2] = [
        [
            1.423_437_110_749_683_5,
            4.630_337_846_156_546,
            5.769_497_221_460_691,
            3.647_848_324_763_204_5,
            1.270_458_252_452_368_4,
            0.241_780_725_177_450_6,
            0.022_723_844_989_269_184,
            7.745_450_142_783_414e-4,
        ],
        [
            1.0,
            2.053_191_626_637_759,
            1.676_384_830_183_803_8,
            0.689_767_334_985_1,
            0.148_103_976_427_480_08,
            0.015_198_666_563_616_457,
            5.475_938_084_995_345e-4,
            1.050_750_071_644_416_9e-9,
        ],
    ];
    const FAR_TAIL: [[f64; 8]; 2] = [
        [
            6.657_904_643_501_103,
            5.463_784_911_164_114,
            1.784_826_539_917_291_3,
            0.296_560_571_828_504_87,
            0.026_532_189_526_576_124,
            0.001_242_660_947_388_078_4,
            2.711_555_568_743_487_6e-5,
            2.010_334_399_292_288_1e-7,
        ],
        [
            1.0,
            0.599_832_206_555_888,
            0.136_929_880_922_735_8,
            0.014_875_361_290_850_615,
            7.868_691_311_456_133e-4,
            1.846_318_317_510_054_8e-5,
            1.421_511_758_316_446e-7,
            2.044_263_103_389_939_8e-15,
        ],
    ];
    let centered = p - 0.5;
    if centered.abs() <= 0.425 {
        return centered * ratio(&CENTER, 0.180625 - centered * centered);
    }
    let tail = p.min(1.0 - p);
    if tail <= 0.0 {
        return f64::INFINITY.copysign(centered);
    }
    let depth = (-tail.ln()).sqrt();
    let quantile = if depth <= 5.0 {
        ratio(&NEAR_TAIL, depth - 1.6)
    } else {
        ratio(&FAR_TAIL, depth - 5.0)
    };
    quantile.copysign(centered)
}

/// A ratio of two polynomials, coefficients from the constant term up.
fn ratio([numerator, denominator]: &[[f64; 8]; 2], x: f64) -> f64 {
    let polynomial = |coefficients: &[f64; 8]| coefficients.iter().rev().fold(0.0, |sum, c| sum * x + c);
    polynomial(numerator) / polynomial(denominator)
}

/// Distribution function of the gamma distribution with this shape and scale 1: the regularized lower incomplete gamma
/// function.
pub(in crate::gw) fn gamma_cdf(shape: f64, x: f64) -> f64 {
    if x <= 0.0 {
        return 0.0;
    }
    let factor = (shape * x.ln() - x - ln_gamma(shape)).exp();
    if x < shape + 1.0 {
        // Series in x.
        let (mut term, mut sum) = (1.0 / shape, 1.0 / shape);
        for n in 1..MAX_TERMS {
            term *= x / (shape + n as f64);
            sum += term;
            if term < sum * CONVERGED {
                break;
            }
        }
        return factor * sum;
    }
    let coefficients = |n: usize| {
        let n = n as f64;
        (n * (shape - n), x + 2.0 * n + 1.0 - shape)
    };
    1.0 - factor / continued_fraction(x + 1.0 - shape, coefficients)
}

/// Distribution function of the beta distribution on [0, 1]: the regularized incomplete beta function.
pub(in crate::gw) fn beta_cdf(a: f64, b: f64, x: f64) -> f64 {
    if x <= 0.0 || x >= 1.0 {
        return if x <= 0.0 { 0.0 } else { 1.0 };
    }
    // The fraction converges fast below the mean; above, use the symmetry.
    if x > (a + 1.0) / (a + b + 2.0) {
        return 1.0 - beta_cdf(b, a, 1.0 - x);
    }
    let ln_beta = ln_gamma(a) + ln_gamma(b) - ln_gamma(a + b);
    let factor = (a * x.ln() + b * (-x).ln_1p() - ln_beta).exp();
    let coefficients = |n: usize| {
        let m = (n / 2) as f64;
        let numerator = match n % 2 {
            0 => m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m)),
            _ => -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0)),
        };
        (numerator, 1.0)
    };
    factor / (a * continued_fraction(1.0, coefficients))
}

/// Distribution function of Student's t distribution with location 0 and scale 1.
pub(in crate::gw) fn student_t_cdf(degrees_of_freedom: f64, t: f64) -> f64 {
    let tail = 0.5
        * beta_cdf(
            0.5 * degrees_of_freedom,
            0.5,
            degrees_of_freedom / (degrees_of_freedom + t * t),
        );
    if t < 0.0 {
        tail
    } else {
        1.0 - tail
    }
}

/// `b0 + a1 / (b1 + a2 / (b2 + …))` with `coefficients(n) = (an, bn)`, by the method of Lentz.
fn continued_fraction(b0: f64, coefficients: impl Fn(usize) -> (f64, f64)) -> f64 {
    const TINY: f64 = 1e-300;
    let nonzero = |x: f64| if x.abs() < TINY { TINY } else { x };
    let mut value = nonzero(b0);
    let (mut c, mut d) = (value, 0.0);
    for n in 1..MAX_TERMS {
        let (a, b) = coefficients(n);
        d = 1.0 / nonzero(b + a * d);
        c = nonzero(b + a / c);
        value *= c * d;
        if (c * d - 1.0).abs() < CONVERGED {
            break;
        }
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assert_relative(value: f64, expected: f64, tolerance: f64) {
        assert!(
            (value / expected - 1.0).abs() < tolerance,
            "{value}, expected {expected}"
        );
    }

    /// Expected values: `scipy.special`'s ndtri, gammainc, betainc and stdtr.
    #[test]
    fn values_are_scipys() {
        assert_relative(normal_quantile(1e-300), -37.0470962993612, 1e-15);
        assert_relative(normal_quantile(1e-20), -9.262340089798409, 1e-15);
        assert_relative(normal_quantile(1e-05), -4.264890793922825, 1e-15);
        assert_relative(normal_quantile(0.0749), -1.4402382675279635, 1e-15);
        assert_relative(normal_quantile(0.3), -0.5244005127080409, 1e-15);
        assert_relative(normal_quantile(0.75), 0.6744897501960817, 1e-15);
        assert_relative(normal_quantile(0.999), 3.090232306167813, 1e-15);
        assert_relative(normal_cdf(-10.0), 7.619853024160527e-24, 1e-13);
        assert_relative(normal_cdf(-3.0), 0.0013498980316300933, 1e-13);
        assert_relative(normal_cdf(0.5), 0.6914624612740131, 1e-13);
        assert_relative(gamma_cdf(0.5, 0.1), 0.34527915398142317, 1e-13);
        assert_relative(gamma_cdf(2.5, 2.0), 0.4505840486472198, 1e-13);
        assert_relative(gamma_cdf(2.5, 9.0), 0.9970535954121197, 1e-13);
        assert_relative(gamma_cdf(40.0, 39.0), 0.457551282871296, 1e-13);
        assert_relative(gamma_cdf(40.0, 60.0), 0.9974518076963866, 1e-13);
        assert_relative(beta_cdf(0.5, 0.5, 0.01), 0.06376856085851985, 1e-13);
        assert_relative(beta_cdf(2.0, 3.0, 0.3), 0.34829999999999994, 1e-13);
        assert_relative(beta_cdf(2.0, 3.0, 0.9), 0.9963, 1e-13);
        assert_relative(beta_cdf(30.0, 5.0, 0.8), 0.1618631360166422, 1e-13);
        assert_relative(student_t_cdf(1.0, -2.0), 0.1475836176504332, 1e-13);
        assert_relative(student_t_cdf(3.0, 0.1), 0.5366738255995971, 1e-13);
        assert_relative(student_t_cdf(7.5, 4.0), 0.9977469448249074, 1e-13);
    }

    #[test]
    fn the_ends_of_the_quantile_are_infinite() {
        assert_eq!(
            (normal_quantile(0.0), normal_quantile(1.0)),
            (f64::NEG_INFINITY, f64::INFINITY)
        );
        assert_eq!(normal_quantile(0.5), 0.0);
    }
}
