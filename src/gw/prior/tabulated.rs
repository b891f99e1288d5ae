//! Distributions given by a table of their density, as bilby's `Interped` treats them.

use crate::gw::numerics::linspace;

/// A density on an even grid, its trapezoidal CDF, and linear interpolation for the inverse.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Tabulated {
    /// Even grid from minimum to maximum.
    grid: Vec<f64>,
    /// Normalized density on the grid.
    density: Vec<f64>,
    /// CDF on the grid, from 0 to 1.
    cumulative: Vec<f64>,
}

impl Tabulated {
    /// From a density (not necessarily normalized) at ascending places. The bounds cut the table; where they are not
    /// given or lie outside, the table's ends are the bounds. The table is then interpolated to an even grid of as many
    /// points, as in bilby.
    pub(super) fn new(places: &[f64], density: &[f64], bounds: [Option<f64>; 2]) -> Result<Tabulated, String> {
        if places.len() != density.len() || places.len() < 2 {
            let (places, density) = (places.len(), density.len());
            return Err(format!(
                "needs as many densities as places and at least 2, but has {density} and {places}"
            ));
        }
        if places.windows(2).any(|pair| pair[0] >= pair[1]) {
            return Err("the places must ascend".to_string());
        }
        if density.iter().any(|&value| !(value.is_finite() && value >= 0.0)) {
            return Err("the densities must be finite and not negative".to_string());
        }
        let minimum = bounds[0].map_or(places[0], |minimum| minimum.max(places[0]));
        let end = places[places.len() - 1];
        let maximum = bounds[1].map_or(end, |maximum| maximum.min(end));
        if minimum >= maximum {
            return Err(format!("needs minimum < maximum, but they are {minimum} and {maximum}"));
        }

        let grid = linspace(minimum, maximum, places.len());
        let mut density: Vec<f64> = grid.iter().map(|&x| interpolate(places, density, x)).collect();
        let mut cumulative = Vec::with_capacity(grid.len());
        let mut total = 0.0;
        cumulative.push(total);
        for i in 1..grid.len() {
            total += 0.5 * (density[i] + density[i - 1]) * (grid[i] - grid[i - 1]);
            cumulative.push(total);
        }
        if total <= 0.0 {
            return Err(format!("there is no probability between {minimum} and {maximum}"));
        }
        density
            .iter_mut()
            .chain(&mut cumulative)
            .for_each(|value| *value /= total);
        Ok(Tabulated {
            grid,
            density,
            cumulative,
        })
    }

    pub(super) fn rescale(&self, u: f64) -> f64 {
        interpolate(&self.cumulative, &self.grid, u)
    }

    pub(super) fn bounds(&self) -> (f64, f64) {
        (self.grid[0], self.grid[self.grid.len() - 1])
    }

    /// Density at `x`, 0 outside of the bounds.
    pub(super) fn density(&self, x: f64) -> f64 {
        let (minimum, maximum) = self.bounds();
        match (minimum..=maximum).contains(&x) {
            true => interpolate(&self.grid, &self.density, x),
            false => 0.0,
        }
    }
}

/// Linear interpolation in a table of at least two rows whose `places` do not descend; its ends go on outside.
fn interpolate(places: &[f64], values: &[f64], x: f64) -> f64 {
    let right = places.partition_point(|&place| place < x).clamp(1, places.len() - 1);
    let left = right - 1;
    let width = places[right] - places[left];
    let fraction = if width > 0.0 {
        ((x - places[left]) / width).clamp(0.0, 1.0)
    } else {
        0.0
    };
    values[left] + fraction * (values[right] - values[left])
}
