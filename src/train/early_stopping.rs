//! Ends a stage when the loss no longer falls (Dingo's `EarlyStopping`).

use super::saved_state::{dictionary, SavedState};
use super::TrainError;
use crate::settings::{EarlyStoppingMetric, EarlyStoppingSettings, Value};

/// Counts the epochs since the loss last fell.
#[derive(Debug)]
pub struct EarlyStopping {
    settings: EarlyStoppingSettings,
    /// Epochs since the best one.
    counter: u64,
    /// The negative of the lowest loss.
    best_score: Option<f64>,
}

impl EarlyStopping {
    pub fn new(settings: &EarlyStoppingSettings) -> EarlyStopping {
        EarlyStopping {
            settings: settings.clone(),
            counter: 0,
            best_score: None,
        }
    }

    /// The end of an epoch. Returns whether the network is the best so far (and `best_model.pt` is due): the configured
    /// loss is below the lowest one by `delta`, or equal to it if that is zero. NaN is never the best (in Dingo it is,
    /// and hides all that follows).
    pub fn update(&mut self, train_loss: f64, test_loss: f64) -> bool {
        let score = match self.settings.metric {
            EarlyStoppingMetric::Training => -train_loss,
            EarlyStoppingMetric::Validation => -test_loss,
        };
        let is_best = match self.best_score {
            None => !score.is_nan(),
            Some(best) => score >= best + self.settings.delta,
        };
        if is_best {
            self.best_score = Some(score);
            self.counter = 0;
        } else {
            self.counter += 1;
            if self.settings.verbose {
                log::info!(
                    "EarlyStopping counter: {} out of {}",
                    self.counter,
                    self.settings.patience
                );
            }
        }
        is_best
    }

    /// Whether `patience` epochs in a row brought no improvement.
    pub fn should_stop(&self) -> bool {
        // The counter is only ever compared after an epoch without improvement.
        self.counter > 0 && self.counter >= self.settings.patience
    }

    pub fn state(&self) -> Value {
        dictionary([
            ("counter", self.counter.into()),
            ("best_score", self.best_score.map_or(Value::Null, Value::from)),
        ])
    }

    /// Takes over what [`EarlyStopping::state`] gave; `path` says where in the checkpoint that stood.
    pub fn load_state(&mut self, path: &str, state: &Value) -> Result<(), TrainError> {
        let saved = SavedState::from_value(path, state)?;
        let (counter, best_score) = (saved.count("counter")?, saved.optional_float("best_score")?);
        self.counter = counter;
        self.best_score = best_score;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stopping(patience: u64, delta: f64, metric: EarlyStoppingMetric) -> EarlyStopping {
        EarlyStopping::new(&EarlyStoppingSettings {
            patience,
            verbose: false,
            delta,
            metric,
        })
    }

    /// (best, stop) after each loss.
    fn follow(stopping: &mut EarlyStopping, losses: &[f64]) -> Vec<(bool, bool)> {
        let each = losses.iter().map(|&loss| {
            let best = stopping.update(0.0, loss);
            (best, stopping.should_stop())
        });
        each.collect()
    }

    /// The expected values are what Dingo's class gave for these losses.
    #[test]
    fn agrees_with_dingo() {
        let (best, worse, stop) = ((true, false), (false, false), (false, true));
        let losses = [3.0, 2.5, 2.5, 2.6, 2.7, 2.4, 2.45, 2.41, 2.5];
        let mut plain = stopping(3, 0.0, EarlyStoppingMetric::Validation);
        assert_eq!(
            follow(&mut plain, &losses),
            [best, best, best, worse, worse, best, worse, worse, stop]
        );
        let mut with_delta = stopping(2, 0.2, EarlyStoppingMetric::Validation);
        assert_eq!(
            follow(&mut with_delta, &losses[..6]),
            [best, best, worse, stop, stop, stop]
        );
    }

    #[test]
    fn looks_at_the_configured_loss() {
        let mut training = stopping(1, 0.0, EarlyStoppingMetric::Training);
        assert!(training.update(2.0, 1.0));
        assert!(!training.update(3.0, 0.5));
        assert!(training.should_stop());
    }

    #[test]
    fn not_a_number_is_never_the_best() {
        let mut stopping = stopping(5, 0.0, EarlyStoppingMetric::Validation);
        assert_eq!(
            follow(&mut stopping, &[f64::NAN, 2.0, f64::NAN, 1.0])
                .iter()
                .map(|x| x.0)
                .collect::<Vec<_>>(),
            [false, true, false, true]
        );
    }

    #[test]
    fn continues_from_its_state() {
        let losses = [3.0, 3.5, 3.2, 2.9, 3.0, 3.0, 3.0];
        let mut whole = stopping(3, 0.0, EarlyStoppingMetric::Validation);
        let expected = follow(&mut whole, &losses);
        for cut in 0..losses.len() {
            let mut first = stopping(3, 0.0, EarlyStoppingMetric::Validation);
            follow(&mut first, &losses[..cut]);
            let mut second = stopping(3, 0.0, EarlyStoppingMetric::Validation);
            second.load_state("spmd.early_stopping", &first.state()).unwrap();
            assert_eq!(follow(&mut second, &losses[cut..]), expected[cut..]);
        }
        let broken = serde_yaml::from_str("{best_score: 1.0}").unwrap();
        let error = whole.load_state("spmd.early_stopping", &broken).unwrap_err();
        assert_eq!(error.to_string(), "spmd.early_stopping.counter: is missing");
    }
}
