//! Steps that are not made, because their loss or gradient is not finite.

use super::TrainError;

/// Counts them. All ranks see the same loss and gradient, the sums over ranks, and so count alike.
#[derive(Debug)]
pub struct SkippedSteps {
    /// So many in a row end the run (`local.max_skipped_steps`).
    most: u64,
    in_a_row: u64,
    this_epoch: u64,
}

/// What was not finite.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotFinite {
    Loss,
    Gradient,
    /// The gradient of a loss scaled up; with a smaller scale it may be finite.
    ScaledGradient,
}

impl SkippedSteps {
    pub fn new(most: u64) -> SkippedSteps {
        SkippedSteps {
            most,
            in_a_row: 0,
            this_epoch: 0,
        }
    }

    /// A step was made.
    pub fn made(&mut self) {
        self.in_a_row = 0;
    }

    /// A step was skipped. While the gradient scaler looks for its scale, steps do not count towards the limit: each one
    /// makes the scale smaller, so that comes to an end.
    ///
    /// # Errors
    /// [`TrainError::Diverged`] at the limit.
    pub fn skipped(&mut self, why: NotFinite) -> Result<(), TrainError> {
        self.this_epoch += 1;
        let what = match why {
            NotFinite::Loss => "its loss is not finite",
            NotFinite::Gradient => "its gradient is not finite",
            NotFinite::ScaledGradient => {
                log::info!("Skipped a step: its scaled gradient overflows; the loss scale is made smaller.");
                return Ok(());
            }
        };
        self.in_a_row += 1;
        if log::log_enabled!(target: "dingo_spmd::train", log::Level::Info) {
            log::warn!("skipped a step: {what} ({} in a row)", self.in_a_row);
        }
        if self.in_a_row >= self.most {
            return Err(TrainError::Diverged {
                steps: self.in_a_row,
                what,
                checkpoint: None,
            });
        }
        Ok(())
    }

    /// How many since the last call.
    pub fn take_epoch(&mut self) -> u64 {
        std::mem::take(&mut self.this_epoch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_steps_in_a_row_end_the_run() {
        let mut steps = SkippedSteps::new(3);
        for _ in 0..5 {
            steps.skipped(NotFinite::Loss).unwrap();
            steps.skipped(NotFinite::ScaledGradient).unwrap();
            steps.skipped(NotFinite::Gradient).unwrap();
            steps.made();
        }
        assert_eq!((steps.take_epoch(), steps.take_epoch()), (15, 0));
        steps.skipped(NotFinite::Loss).unwrap();
        steps.skipped(NotFinite::Loss).unwrap();
        let error = steps.skipped(NotFinite::Gradient).unwrap_err().to_string();
        assert!(
            error.contains("3 optimizer steps in a row") && error.contains("max_skipped_steps"),
            "{error}"
        );
    }
}
