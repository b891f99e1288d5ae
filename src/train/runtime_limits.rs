//! When a run must stop: wall-clock time, epochs of this run, epochs in total (Dingo's `RuntimeLimits`).

use crate::settings::RuntimeLimitSettings;
use std::time::{Duration, Instant};

/// Checked between epochs; the time limit inside them too (see [`Interrupts`](super::interrupts::Interrupts)). A rank's clock may be ahead of another's: each rank hands its verdict to `agree`, which
/// returns true on all ranks when any of them passed true.
#[derive(Debug)]
pub struct RuntimeLimits {
    settings: RuntimeLimitSettings,
    epoch_start: u64,
    stage_end: u64,
    started: Instant,
}

impl RuntimeLimits {
    /// `epoch_start`: epochs completed when this run began. `started`: the moment `max_time_per_run` counts from.
    pub fn new(settings: &RuntimeLimitSettings, epoch_start: u64, started: Instant) -> RuntimeLimits {
        RuntimeLimits {
            settings: settings.clone(),
            epoch_start,
            stage_end: u64::MAX,
            started,
        }
    }

    /// The epoch after which the present stage is complete.
    pub fn set_stage_end(&mut self, epoch: u64) {
        self.stage_end = epoch;
    }

    /// The moment `max_time_per_run` ends; `None` is no limit, as is one beyond what a clock can say.
    pub fn time_limit(&self) -> Option<Instant> {
        let limit = Duration::try_from_secs_f64(self.settings.max_time_per_run?).ok()?;
        self.started.checked_add(limit)
    }

    /// The message for it.
    pub fn time_limit_reached(&self) -> String {
        let limit = self.settings.max_time_per_run.unwrap_or(f64::INFINITY);
        format!("Stop run: Time limit of {limit} s exceeded.")
    }

    /// Whether to end the stage's loop after `epoch` completed epochs: a limit of the run is reached, or the stage is
    /// complete. Logs why.
    pub fn limits_exceeded<E>(&self, epoch: u64, agree: impl FnOnce(bool) -> Result<bool, E>) -> Result<bool, E> {
        let mut reasons = self.local_reasons(epoch, self.started.elapsed());
        if epoch >= self.stage_end {
            reasons.push(total_limit(self.stage_end));
        }
        for reason in &reasons {
            log::info!("{reason}");
        }
        agree(!reasons.is_empty())
    }

    /// Whether to end the run after `epoch` completed epochs, with stages left or not.
    pub fn local_limits_exceeded<E>(&self, epoch: u64, agree: impl FnOnce(bool) -> Result<bool, E>) -> Result<bool, E> {
        agree(!self.local_reasons(epoch, self.started.elapsed()).is_empty())
    }

    /// Which of the user's limits are reached, in Dingo's words.
    fn local_reasons(&self, epoch: u64, elapsed: Duration) -> Vec<String> {
        let RuntimeLimitSettings {
            max_time_per_run,
            max_epochs_per_run,
            max_epochs_total,
        } = self.settings;
        let time = max_time_per_run
            .filter(|&limit| elapsed.as_secs_f64() >= limit)
            .map(|_| self.time_limit_reached());
        let epochs = max_epochs_per_run
            .filter(|&limit| epoch.saturating_sub(self.epoch_start) >= limit)
            .map(|limit| format!("Stop run: Epoch limit of {limit} per run reached."));
        // Dingo overwrites this setting with the end of the stage; here both hold.
        let total = max_epochs_total.filter(|&limit| epoch >= limit).map(total_limit);
        [time, epochs, total].into_iter().flatten().collect()
    }
}

fn total_limit(epochs: u64) -> String {
    format!("Stop run: Total epoch limit of {epochs} reached.")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    fn limits(time: Option<f64>, per_run: Option<u64>, total: Option<u64>) -> RuntimeLimits {
        let settings = RuntimeLimitSettings {
            max_time_per_run: time,
            max_epochs_per_run: per_run,
            max_epochs_total: total,
        };
        RuntimeLimits::new(&settings, 10, Instant::now())
    }

    fn alone(flag: bool) -> Result<bool, Infallible> {
        Ok(flag)
    }

    #[test]
    fn reasons_are_worded_as_in_dingo() {
        let limits = limits(Some(3600.0), Some(5), Some(15));
        let hour = Duration::from_secs(3600);
        assert_eq!(limits.local_reasons(14, Duration::from_secs(3599)), [""; 0]);
        assert_eq!(
            limits.local_reasons(15, hour),
            [
                "Stop run: Time limit of 3600 s exceeded.",
                "Stop run: Epoch limit of 5 per run reached.",
                "Stop run: Total epoch limit of 15 reached."
            ]
        );
    }

    #[test]
    fn a_complete_stage_ends_the_loop_but_not_the_run() {
        let mut limits = limits(None, None, None);
        limits.set_stage_end(12);
        assert_eq!(limits.limits_exceeded(11, alone), Ok(false));
        assert_eq!(limits.limits_exceeded(12, alone), Ok(true));
        assert_eq!(limits.local_limits_exceeded(12, alone), Ok(false));
    }

    #[test]
    fn one_rank_stops_all() {
        let limits = limits(None, None, None);
        assert_eq!(limits.limits_exceeded::<Infallible>(11, |_| Ok(true)), Ok(true));
        assert_eq!(limits.limits_exceeded(11, |_| Err("lost a rank")), Err("lost a rank"));
    }
}
