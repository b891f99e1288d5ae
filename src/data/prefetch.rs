//! Numbered work, done ahead by threads and handed out in order.

use std::any::Any;
use std::ops::Range;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::Arc;
use std::thread::JoinHandle;

use crossbeam_channel::{bounded, Receiver, Sender};

use super::DataError;
use crate::torch_ext::threads::limit_this_thread;

/// Finished items that a thread may have waiting; it works on one more.
const WAITING: usize = 1;

/// An iterator over what threads make for the numbers of a range, in their order. After an error there is nothing more.
/// Dropping it stops the threads, after the items they are at.
pub struct Prefetch<T> {
    /// One per thread. The threads take numbers in turn, so results are taken from them in turn.
    receivers: Vec<Receiver<Result<T, DataError>>>,
    workers: Vec<JoinHandle<()>>,
    taken: usize,
    left: Range<usize>,
}

impl<T: Send + 'static> Prefetch<T> {
    /// Starts `threads` threads (at least one), each of which uses one core. A panic in `make` becomes an error.
    pub(super) fn start(
        numbers: Range<usize>,
        threads: usize,
        make: impl Fn(usize) -> Result<T, DataError> + Send + Sync + 'static,
    ) -> Prefetch<T> {
        let make = Arc::new(make);
        let threads = threads.clamp(1, numbers.len().max(1));
        let mut prefetch = Prefetch {
            receivers: Vec::new(),
            workers: Vec::new(),
            taken: 0,
            left: numbers.clone(),
        };
        for thread in 0..threads {
            let (sender, receiver) = bounded(WAITING);
            let make = Arc::clone(&make);
            let own = numbers.clone().skip(thread).step_by(threads);
            let work = move || work(&*make, own, &sender);
            match std::thread::Builder::new().name(format!("data-{thread}")).spawn(work) {
                Ok(worker) => prefetch.workers.push(worker),
                // Its sender is gone with it, which is an error when its first item is asked for.
                Err(error) => log::error!("cannot start a data thread: {error}"),
            }
            prefetch.receivers.push(receiver);
        }
        prefetch
    }
}

/// What a thread does: its items one by one, until the last one, an error, or nobody listens any more.
fn work<T>(
    make: &dyn Fn(usize) -> Result<T, DataError>,
    numbers: impl Iterator<Item = usize>,
    sender: &Sender<Result<T, DataError>>,
) {
    // The other cores belong to the training.
    limit_this_thread(1);
    for number in numbers {
        let made = catch_unwind(AssertUnwindSafe(|| make(number)));
        let made = made.unwrap_or_else(|panic| Err(DataError::Compute(panic_message(&*panic))));
        let failed = made.is_err();
        if sender.send(made).is_err() || failed {
            return;
        }
    }
}

fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied());
    format!("a data thread panicked: {}", text.unwrap_or("no message"))
}

impl<T> Iterator for Prefetch<T> {
    type Item = Result<T, DataError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.left.next()?;
        let gone = || {
            Err(DataError::Compute(
                "a data thread ended before its work was done".into(),
            ))
        };
        let item = self.receivers[self.taken % self.receivers.len()]
            .recv()
            .unwrap_or_else(|_| gone());
        self.taken += 1;
        if item.is_err() {
            self.left = 0..0;
        }
        Some(item)
    }
}

impl<T> Drop for Prefetch<T> {
    fn drop(&mut self) {
        // Without receivers, sending fails and the threads end.
        self.receivers.clear();
        for worker in self.workers.drain(..) {
            // Panics were caught and told; there is nothing to learn from the join.
            let _ = worker.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    #[test]
    fn items_come_in_order_from_any_number_of_threads() {
        for threads in [0, 1, 2, 3, 7, 50] {
            // The earlier of neighbours takes longer.
            let make = |n: usize| {
                std::thread::sleep(Duration::from_micros(300 * (n as u64 % 3)));
                Ok(n * n)
            };
            let items: Vec<usize> = Prefetch::start(5..40, threads, make)
                .map(|item| item.expect("made"))
                .collect();
            assert_eq!(items, (5..40).map(|n| n * n).collect::<Vec<_>>());
        }
        assert_eq!(Prefetch::start(3..3, 2, Ok::<usize, DataError>).count(), 0);
    }

    #[test]
    fn a_panic_is_an_error_and_the_last_item() {
        for threads in [1, 4] {
            let make = |n: usize| if n == 6 { panic!("item {n} is cursed") } else { Ok(n) };
            let items: Vec<_> = Prefetch::start(0..100, threads, make).collect();
            assert_eq!(items.len(), 7);
            assert!(items[..6].iter().all(Result::is_ok));
            let message = items[6].as_ref().expect_err("a panic").to_string();
            assert!(
                message.ends_with("a data thread panicked: item 6 is cursed"),
                "{message}"
            );
        }
    }

    #[test]
    fn work_ahead_is_bounded_and_dropping_stops_it() {
        let made = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&made);
        let mut items = Prefetch::start(0..1_000_000, 2, move |n| {
            count.fetch_add(1, Ordering::SeqCst);
            Ok(n)
        });
        items.next();
        std::thread::sleep(Duration::from_millis(50));
        // One was taken; each of two threads has one waiting and one in hand.
        assert_eq!(made.load(Ordering::SeqCst), 5);
        drop(items);
        let at_the_end = made.load(Ordering::SeqCst);
        std::thread::sleep(Duration::from_millis(20));
        assert!(at_the_end <= 6 && made.load(Ordering::SeqCst) == at_the_end);
    }

    #[test]
    fn threads_use_one_core_each() {
        let limits = Prefetch::start(0..4, 2, |_| Ok(tch::get_num_threads()));
        assert!(limits.map(|limit| limit.expect("made")).all(|limit| limit == 1));
    }
}
