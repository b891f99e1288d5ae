//! Whether the stages of a training fit its number of samples.

use crate::data::{share_of, DataError};
use crate::settings::{ModelSettings, Norm, StageSettings};

/// BatchNorm has no variance of fewer.
const LEAST_TO_NORMALIZE: usize = 2;

/// Checks stage `number` for `samples` training samples. `apart`: how many ranks normalize each by its own share of a batch;
/// 1 where they do it together.
///
/// # Errors
/// [`DataError::Setting`] at a key of the stage: an epoch that would make no step, or a batch too small for the network's
/// BatchNorm.
pub fn check_stage(
    number: usize,
    stage: &StageSettings,
    model: &ModelSettings,
    samples: usize,
    apart: usize,
) -> Result<(), DataError> {
    let (size, passes) = (stage.batch_size, stage.gradient_updates_per_optimizer_step);
    let batches = samples.div_ceil(size);
    let refuse = |key: &str, message: String| {
        let key = format!("training.stage_{number}.{key}");
        Err(DataError::Setting { key, message })
    };
    if passes > batches {
        let message =
            format!("found {passes}, but an epoch has only {batches} batches of {size}, so that it would make no step");
        return refuse("gradient_updates_per_optimizer_step", message);
    }
    let norms = [model.embedding.norm, model.posterior.base_transform.norm];
    if !norms.contains(&Norm::BatchNorm) {
        return Ok(());
    }
    let smallest_share = |batch: usize| (0..apart).map(|rank| share_of(batch, rank, apart).len()).min();
    let too_small = |batch: usize| smallest_share(batch).is_some_and(|share| share < LEAST_TO_NORMALIZE);
    let each = if apart > 1 {
        " on each rank (local.sync_batch_norm is false)"
    } else {
        ""
    };
    let needs = format!("BatchNorm needs at least {LEAST_TO_NORMALIZE}{each}");
    let last = samples - (batches - 1) * size;
    let last_is_trained_on = batches % passes == 0;
    if batches > 1 && too_small(size) {
        return refuse("batch_size", format!("found {size}, but {needs}"));
    }
    if last_is_trained_on && too_small(last) {
        let message = format!(
            "found {size}, which leaves {last} of the {samples} training samples for an epoch's last batch, but {needs}"
        );
        return refuse("batch_size", message);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Settings;

    /// The message for batches of `size`, `passes` a step; empty if all is well.
    fn message(batch_norm: bool, size: usize, passes: usize, samples: usize, apart: usize) -> String {
        let case = if batch_norm { "npe" } else { "toy" };
        let path = format!("{}/tests/cases/{case}/train_settings.yaml", env!("CARGO_MANIFEST_DIR"));
        let mut settings = Settings::load(path.as_ref()).unwrap().train;
        let stage = &mut settings.stages[1];
        stage.batch_size = size;
        stage.gradient_updates_per_optimizer_step = passes;
        let checked = check_stage(1, stage, &settings.model, samples, apart);
        checked.err().map_or(String::new(), |error| error.to_string())
    }

    #[test]
    fn batch_norm_needs_two_samples() {
        assert_eq!(
            message(true, 32, 1, 225, 1),
            "training.stage_1.batch_size: found 32, which leaves 1 of the 225 training samples for an epoch's last batch, but \
             BatchNorm needs at least 2"
        );
        assert_eq!(
            message(true, 1, 1, 225, 1),
            "training.stage_1.batch_size: found 1, but BatchNorm needs at least 2"
        );
        assert!(message(true, 4, 1, 224, 4).ends_with("at least 2 on each rank (local.sync_batch_norm is false)"));
        assert!(message(true, 32, 1, 231, 4).contains("leaves 7 of the 231"));
        for (samples, apart) in [(224, 1), (226, 1), (232, 4)] {
            assert_eq!(message(true, 32, 1, samples, apart), "");
        }
    }

    #[test]
    fn other_batches_may_have_one_and_a_tail_without_a_step_may_be_any() {
        assert_eq!(message(false, 32, 1, 225, 1), "");
        assert_eq!(message(false, 1, 1, 225, 4), "");
        assert_eq!(
            message(true, 32, 7, 225, 1),
            "",
            "eight batches, seven of which make a step"
        );
    }

    #[test]
    fn an_epoch_makes_a_step() {
        assert_eq!(message(false, 32, 8, 225, 1), "");
        assert!(
            message(false, 32, 9, 225, 1).starts_with("training.stage_1.gradient_updates_per_optimizer_step: found 9")
        );
    }
}
