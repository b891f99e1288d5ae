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

/// How much faster than libtorch's own choice another library must be to be taken. Two runs should not differ, even by
/// rounding, for a difference in speed that the next measurement may deny.
const MARGIN: f64 = 1.1;

/// Where a checkpoint keeps the name of the library, under `spmd`.
pub(super) const KEY: &str = "matrix_library";

/// Chooses for the process: what the settings ask for, else what a run that is resumed has used, since libraries round
/// differently, else the fastest that is exact. All ranks call this together, with
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
            let fastest = fastest(&speeds, tolerance);
            let is_exact = |library| speeds.iter().any(|s| s.library == library && s.error <= tolerance);
            let chosen = used.filter(|&used| is_exact(used)).unwrap_or(fastest);
            log::info!("Matrix products: {}.", report(&speeds, chosen, tolerance));
            if chosen != fastest {
                log::info!(
                    "The run so far used {}, and goes on with it so as to be the same. {} would be faster: \
                     local.matrix_library.",
                    chosen.name(),
                    fastest.name()
                );
            }
            chosen
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

/// The fastest of those within the tolerance; libtorch's own where the others are not faster by the margin, and where none is
/// exact.
fn fastest(speeds: &[MatrixSpeed], tolerance: f64) -> MatrixLibrary {
    let default = MatrixLibrary::Mkl;
    let handicap = |speed: &MatrixSpeed| if speed.library == default { MARGIN } else { 1.0 };
    let seconds = |speed: &MatrixSpeed| speed.seconds / handicap(speed);
    let exact = speeds.iter().filter(|speed| speed.error <= tolerance);
    let best = exact.min_by(|a, b| seconds(a).total_cmp(&seconds(b)));
    best.map_or(default, |speed| speed.library)
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
        let choice = |mkl, onednn| fastest(&speeds(mkl, onednn), TOLERANCE);
        assert_eq!(choice((1.0, 1e-6), (0.5, 1e-6)), MatrixLibrary::OneDnn);
        assert_eq!(choice((0.5, 1e-6), (1.0, 1e-6)), MatrixLibrary::Mkl);
        // Within the margin, and faster only since it is not exact.
        assert_eq!(choice((1.0, 1e-6), (0.92, 1e-6)), MatrixLibrary::Mkl);
        assert_eq!(choice((1.0, 1e-6), (0.5, 1e-3)), MatrixLibrary::Mkl);
        assert_eq!(choice((1.0, 1e-6), (0.5, f64::NAN)), MatrixLibrary::Mkl);
        assert_eq!(choice((1.0, f64::NAN), (2.0, 1e-6)), MatrixLibrary::OneDnn);
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
