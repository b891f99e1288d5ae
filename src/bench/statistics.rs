//! Medians and quartiles.

use serde::Serialize;

/// The middle half of some numbers.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Quartiles {
    pub first: f64,
    pub median: f64,
    pub third: f64,
}

impl Quartiles {
    /// NaN of no numbers.
    pub fn of(values: &[f64]) -> Quartiles {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        Quartiles {
            first: quantile(&sorted, 0.25),
            median: quantile(&sorted, 0.5),
            third: quantile(&sorted, 0.75),
        }
    }
}

pub fn median(values: &[f64]) -> f64 {
    Quartiles::of(values).median
}

/// Linear between neighbours, as NumPy's default.
fn quantile(sorted: &[f64], share: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else {
        return f64::NAN;
    };
    let place = share * last as f64;
    let below = place.floor() as usize;
    let above = (below + 1).min(last);
    sorted[below] + (place - below as f64) * (sorted[above] - sorted[below])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quartiles_are_numpys() {
        let Quartiles { first, median, third } = Quartiles::of(&[4.0, 1.0, 3.0, 2.0]);
        assert_eq!((first, median, third), (1.75, 2.5, 3.25));
        assert_eq!(Quartiles::of(&[7.0]).third, 7.0);
        assert!(super::median(&[]).is_nan());
    }
}
