//! Which library does the large matrix products: measured before anything else is computed, and the same on all ranks.

use crate::checkpoint::Checkpoint;
use crate::settings;
use crate::spmd::World;
use crate::torch_ext::{
    choose_matrix_library, float32_matmul_precision, measure_matrix_libraries, MatrixLibrary, MatrixSpeed,
};
use anyhow::Result;

/// What a product of single precision may be off by, relative to its largest number: ten times what rounding costs, and far
/// less than any shorter type would.
const TOLERANCE: f64 = 1e-5;

/// How much faster than libtorch's own choice another library must be to be taken, so that noise does not decide.
const MARGIN: f64 = 1.05;

/// How much faster than the one that a run has used so far: libraries round differently, and a run that is continued shall
/// be the one that was not interrupted.
const MARGIN_OF_RESUMED: f64 = 1.25;

/// Where a checkpoint keeps the name of the library, under `spmd`.
pub(super) const KEY: &str = "matrix_library";

/// Chooses for the process: what the settings ask for, else the fastest that is exact. All ranks call this together, with
/// the threads that they train with.
///
/// # Errors
/// What libtorch or MPI says.
pub fn choose(world: &World, wanted: Option<settings::MatrixLibrary>, resumed: Option<&Checkpoint>) -> Result<()> {
    let used = resumed.and_then(used_by);
    let library = match wanted {
        Some(settings::MatrixLibrary::Mkl) => MatrixLibrary::Mkl,
        Some(settings::MatrixLibrary::OneDnn) => MatrixLibrary::OneDnn,
        None => {
            let speeds = agree_on_speeds(world, measure_matrix_libraries()?)?;
            // Whoever allows shorter types has asked for them.
            let must_be_exact = float32_matmul_precision()? == "highest";
            let tolerance = if must_be_exact { TOLERANCE } else { f64::INFINITY };
            let fastest = match used {
                Some(used) => fastest(&speeds, tolerance, used, MARGIN_OF_RESUMED),
                None => fastest(&speeds, tolerance, MatrixLibrary::Mkl, MARGIN),
            };
            log::info!("Matrix products: {}.", report(&speeds, fastest, tolerance));
            fastest
        }
    };
    if let Some(used) = used.filter(|&used| used != library) {
        log::warn!(
            "The run so far used {} for matrix products: it goes on as if it had not stopped, up to rounding.",
            used.name()
        );
    }
    choose_matrix_library(library);
    Ok(())
}

/// What the run that wrote the checkpoint used, where it says.
fn used_by(checkpoint: &Checkpoint) -> Option<MatrixLibrary> {
    let name = checkpoint.spmd.as_ref()?.get(KEY)?.as_str()?;
    MatrixLibrary::ALL.into_iter().find(|library| library.name() == name)
}

/// The seconds of all ranks together, and the largest error, which are the same on all of them.
fn agree_on_speeds(world: &World, mut speeds: Vec<MatrixSpeed>) -> Result<Vec<MatrixSpeed>> {
    let mut seconds: Vec<f64> = speeds.iter().map(|speed| speed.seconds).collect();
    let mut errors: Vec<f64> = speeds.iter().map(|speed| speed.error).collect();
    world.sum(&mut seconds)?;
    world.max(&mut errors)?;
    for (speed, (seconds, error)) in speeds.iter_mut().zip(seconds.into_iter().zip(errors)) {
        (speed.seconds, speed.error) = (seconds / world.size as f64, error);
    }
    Ok(speeds)
}

/// The fastest of those within the tolerance; `preferred` where the others are not faster by the margin, and where none is
/// exact.
fn fastest(speeds: &[MatrixSpeed], tolerance: f64, preferred: MatrixLibrary, margin: f64) -> MatrixLibrary {
    let handicap = |speed: &MatrixSpeed| if speed.library == preferred { margin } else { 1.0 };
    let seconds = |speed: &MatrixSpeed| speed.seconds / handicap(speed);
    let exact = speeds.iter().filter(|speed| speed.error <= tolerance);
    let best = exact.min_by(|a, b| seconds(a).total_cmp(&seconds(b)));
    best.map_or(preferred, |speed| speed.library)
}

/// `oneDNN (430 GFLOP/s; MKL 200)`.
fn report(speeds: &[MatrixSpeed], chosen: MatrixLibrary, tolerance: f64) -> String {
    let gflops = |speed: &MatrixSpeed| speed.flops / speed.seconds / 1e9;
    let mut text = String::new();
    for speed in speeds.iter().filter(|speed| speed.library == chosen) {
        text = format!("{:.0} GFLOP/s", gflops(speed));
    }
    for speed in speeds.iter().filter(|speed| speed.library != chosen) {
        text += &format!("; {} {:.0}", speed.library.name(), gflops(speed));
        if speed.error > tolerance {
            text += &format!(", not exact: {:.0e}", speed.error);
        }
    }
    format!("{} ({text})", chosen.name())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn speeds(mkl: (f64, f64), onednn: (f64, f64)) -> [MatrixSpeed; 2] {
        let speed = |library, (seconds, error)| MatrixSpeed {
            library,
            seconds,
            flops: 1e11,
            error,
        };
        [speed(MatrixLibrary::Mkl, mkl), speed(MatrixLibrary::OneDnn, onednn)]
    }

    #[test]
    fn the_fastest_exact_library_is_taken() {
        let choice = |mkl, onednn| fastest(&speeds(mkl, onednn), TOLERANCE, MatrixLibrary::Mkl, 1.05);
        assert_eq!(choice((1.0, 1e-6), (0.5, 1e-6)), MatrixLibrary::OneDnn);
        assert_eq!(choice((0.5, 1e-6), (1.0, 1e-6)), MatrixLibrary::Mkl);
        // Within the margin, and faster only since it is not exact.
        assert_eq!(choice((1.0, 1e-6), (0.98, 1e-6)), MatrixLibrary::Mkl);
        assert_eq!(choice((1.0, 1e-6), (0.5, 1e-3)), MatrixLibrary::Mkl);
        assert_eq!(choice((1.0, 1e-6), (0.5, f64::NAN)), MatrixLibrary::Mkl);
        assert_eq!(choice((1.0, f64::NAN), (2.0, 1e-6)), MatrixLibrary::OneDnn);
        let resumed = |mkl, onednn| fastest(&speeds(mkl, onednn), TOLERANCE, MatrixLibrary::OneDnn, 1.25);
        assert_eq!(resumed((1.0, 1e-6), (1.2, 1e-6)), MatrixLibrary::OneDnn);
        assert_eq!(resumed((1.0, 1e-6), (1.3, 1e-6)), MatrixLibrary::Mkl);
    }

    #[test]
    fn the_report_names_both() {
        let speeds = speeds((1.0, 1e-6), (0.5, 1e-3));
        assert_eq!(
            report(&speeds, MatrixLibrary::OneDnn, f64::INFINITY),
            "oneDNN (200 GFLOP/s; MKL 100)"
        );
        assert_eq!(
            report(&speeds, MatrixLibrary::Mkl, TOLERANCE),
            "MKL (100 GFLOP/s; oneDNN 200, not exact: 1e-3)"
        );
    }

    #[test]
    fn a_world_of_one_measures_and_chooses() {
        choose(&World::alone(|_| 1), None, None).unwrap();
        choose(&World::alone(|_| 1), Some(settings::MatrixLibrary::Mkl), None).unwrap();
    }
}
