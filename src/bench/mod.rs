//! Measurement.
//!
//! [`run`] measures training steps as training makes them, on all ranks together: a [`Subject`] is what a settings file
//! trains, `step_time` is the protocol, a [`Measurement`] is what came of it, [`table`] and [`picture`] put several side by
//! side. [`growth`] asks what a larger network costs, [`data_pipeline`] looks at the data alone, and [`dataset`] makes
//! files to measure with.

mod data_pipeline;
pub mod dataset;
mod error;
mod flops;
mod growth;
mod measurement;
mod memory;
mod peak;
pub mod picture;
mod request;
mod statistics;
mod step_time;
mod stopwatch;
mod subject;
mod synthetic;
pub mod table;
mod throughput;

pub use data_pipeline::data_pipeline;
pub use error::BenchError;
pub use flops::GemmFlops;
pub use growth::growth;
pub use measurement::Measurement;
pub use request::{BenchRequest, Configuration, Variant};
pub use subject::Subject;

use crate::spmd::World;
use anyhow::Result;
use std::path::Path;

/// Measures every batch size with every variant that `request` names; reports each as it comes, and writes the files that
/// are asked for. All ranks call this together.
///
/// # Errors
/// As a training with these settings, and files that cannot be written.
pub fn run(world: &World, request: &BenchRequest) -> Result<Vec<Measurement>> {
    let subject = Subject::open(world, request)?;
    let mut measurements = Vec::new();
    for configuration in request.configurations(subject.batch_size()) {
        let measurement = subject.measure(world, &configuration, request)?;
        log::info!("{measurement}\n");
        let appended = match (&request.csv, world.is_root()) {
            // At once: a sweep that ends early leaves what it has.
            (Some(path), true) => table::append(path, &measurement),
            _ => Ok(()),
        };
        world.agree(appended.map_err(Into::into))?;
        measurements.push(measurement);
    }
    let written = if world.is_root() {
        write_files(request, &measurements)
    } else {
        Ok(())
    };
    world.agree(written)?;
    Ok(measurements)
}

fn write_files(request: &BenchRequest, measurements: &[Measurement]) -> Result<()> {
    if let Some(path) = &request.json {
        let text = serde_json::to_string_pretty(measurements)?;
        std::fs::write(path, text + "\n").map_err(BenchError::io("write", path))?;
        log::info!("Written: {}", path.display());
    }
    if let Some(path) = &request.picture {
        // The table has what was measured on other numbers of ranks, too.
        let points = match &request.csv {
            Some(csv) => table::read(csv)?,
            None => measurements.iter().map(table::Point::of).collect(),
        };
        draw(path, &points)?;
    }
    Ok(())
}

/// Draws what tables hold: time per epoch over batch size.
///
/// # Errors
/// A table that cannot be read or holds nothing, a picture that cannot be written.
pub fn plot(tables: &[impl AsRef<Path>], picture: &Path) -> Result<()> {
    let mut points = Vec::new();
    for path in tables {
        points.extend(table::read(path.as_ref())?);
    }
    draw(picture, &points)
}

fn draw(path: &Path, points: &[table::Point]) -> Result<()> {
    picture::draw(path, points)?;
    log::info!("Written: {}", path.display());
    Ok(())
}
