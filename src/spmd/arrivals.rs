//! Which collectives this rank has come to: what a watchdog compares.

use std::sync::Mutex;
use std::time::{Duration, Instant};

/// The collectives of one communicator. All ranks come to the same ones in the same order, so a rank with a lower count than
/// another has not arrived at the one the other waits in.
#[derive(Debug, Default)]
pub(super) struct Arrivals {
    state: Mutex<State>,
}

#[derive(Debug, Default, Clone, Copy)]
struct State {
    begun: u64,
    completed: u64,
    /// Since when the oldest of those under way is the oldest.
    since: Option<Instant>,
}

impl Arrivals {
    /// Gives the collective's number, from 1.
    pub fn begin(&self) -> u64 {
        let mut number = 0;
        self.change(|state| {
            state.begun += 1;
            number = state.begun;
            state.since.get_or_insert_with(Instant::now);
        });
        number
    }

    pub fn complete(&self) {
        self.change(|state| {
            state.completed += 1;
            state.since = (state.begun > state.completed).then(Instant::now);
        });
    }

    /// All up to this number are complete, where that is found out now and then rather than one by one.
    pub fn complete_up_to(&self, number: u64) {
        self.change(|state| {
            if number > state.completed {
                state.completed = number;
                state.since = (state.begun > number).then(Instant::now);
            }
        });
    }

    pub fn completed(&self) -> u64 {
        self.read().completed
    }

    /// Collectives that this rank has come to.
    pub fn begun(&self) -> u64 {
        self.read().begun
    }

    /// The number of the collective that has been under way for this long, if there is one.
    pub fn overdue(&self, limit: Duration) -> Option<u64> {
        let state = self.read();
        state
            .since
            .filter(|since| since.elapsed() >= limit)
            .map(|_| state.completed + 1)
    }

    fn read(&self) -> State {
        // A thread that panics ends the job, so a poisoned lock is nobody's concern.
        self.state
            .lock()
            .map_or_else(|poisoned| *poisoned.into_inner(), |state| *state)
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        match self.state.lock() {
            Ok(mut state) => change(&mut state),
            Err(poisoned) => change(&mut poisoned.into_inner()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_one_under_way_counts() {
        let arrivals = Arrivals::default();
        assert_eq!(arrivals.overdue(Duration::ZERO), None);
        arrivals.begin();
        arrivals.begin();
        assert_eq!((arrivals.overdue(Duration::ZERO), arrivals.begun()), (Some(1), 2));
        assert_eq!(arrivals.overdue(Duration::from_secs(60)), None);
        arrivals.complete();
        assert_eq!(arrivals.overdue(Duration::ZERO), Some(2));
        arrivals.complete();
        assert_eq!((arrivals.overdue(Duration::ZERO), arrivals.begun()), (None, 2));
    }

    #[test]
    fn many_can_be_complete_at_once() {
        let arrivals = Arrivals::default();
        assert_eq!([(); 4].map(|()| arrivals.begin()), [1, 2, 3, 4]);
        arrivals.complete_up_to(3);
        arrivals.complete_up_to(2);
        assert_eq!((arrivals.completed(), arrivals.overdue(Duration::ZERO)), (3, Some(4)));
        arrivals.complete_up_to(4);
        assert_eq!(arrivals.overdue(Duration::ZERO), None);
    }
}
