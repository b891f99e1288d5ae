//! Looks after the collectives: when one takes too long, says which ranks have not arrived, and ends the job.
//!
//! Every rank has a thread that wakes a few times a second. When its own rank has waited too long, it asks the other ranks'
//! threads how far they are; they answer even while their ranks compute or sleep. A rank that does not answer either is
//! stopped, or cannot be reached. Nothing of this touches the way of the data.

use super::arrivals::Arrivals;
use super::communicator::Communicator;
use super::error::{Result, SpmdError};
use super::failure::{self, GENERAL_FAILURE};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often a watchdog looks.
const PERIOD: Duration = Duration::from_millis(100);

/// How long it waits for the others' answers.
const ANSWERS: Duration = Duration::from_secs(3);

/// All ranks that wait find out at about the same time. The first of them speaks; the others would after this long each.
const TURN: Duration = Duration::from_millis(500);

/// What collectives are for, by the communicator they use.
pub(super) const PURPOSES: [&str; 3] = [
    "an exchange of numbers",
    "batch normalization",
    "the sum of the gradients",
];

/// A message between watchdogs: question or answer, the sender, and its arrivals for each purpose.
const LENGTH: usize = 2 + PURPOSES.len();
type Message = [u64; LENGTH];
const QUESTION: u64 = 0;
const ANSWER: u64 = 1;

/// Stops with this value.
pub(super) struct Watchdog {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// What its thread works with.
struct Watch {
    communicator: Arc<Communicator>,
    /// In the order of `PURPOSES`.
    arrivals: [Arc<Arrivals>; PURPOSES.len()],
    hosts: Vec<String>,
    limit: Duration,
    stop: Arc<AtomicBool>,
    /// What each rank has answered.
    answers: Vec<Option<[u64; PURPOSES.len()]>>,
}

impl Watchdog {
    pub fn start(
        communicator: Arc<Communicator>,
        arrivals: [Arc<Arrivals>; PURPOSES.len()],
        hosts: Vec<String>,
        limit: Duration,
    ) -> Result<Watchdog> {
        let stop = Arc::new(AtomicBool::new(false));
        let mut watch = Watch {
            communicator,
            arrivals,
            answers: vec![None; hosts.len()],
            hosts,
            limit,
            stop: stop.clone(),
        };
        let watch = move || {
            if let Err(error) = watch.run() {
                log::warn!("collectives are no longer watched: {error}");
            }
        };
        let thread = std::thread::Builder::new()
            .name("watchdog".into())
            .spawn(watch)
            .map_err(|error| SpmdError::Usage(format!("the watchdog does not start: {error}")))?;
        Ok(Watchdog {
            stop,
            thread: Some(thread),
        })
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // A panic there has ended the job already.
            let _ = thread.join();
        }
    }
}

impl Watch {
    fn run(&mut self) -> Result<()> {
        while !self.stop.load(Ordering::Acquire) {
            std::thread::park_timeout(PERIOD.min(self.limit));
            self.talk()?;
            if let Some((purpose, number)) = self.overdue() {
                self.end_job(purpose, number)?;
            }
        }
        Ok(())
    }

    /// A collective that has been under way for too long: its purpose and its number among those.
    fn overdue(&self) -> Option<(usize, u64)> {
        let overdue = |(purpose, arrivals): (usize, &Arc<Arrivals>)| Some((purpose, arrivals.overdue(self.limit)?));
        self.arrivals.iter().enumerate().find_map(overdue)
    }

    /// Answers the others' questions and takes note of their answers.
    fn talk(&mut self) -> Result<()> {
        let mut message: Message = [0; LENGTH];
        while self.communicator.receive_if_there(&mut message)? {
            let [kind, sender, arrivals @ ..] = message;
            match kind {
                QUESTION => self.send(ANSWER, sender as usize)?,
                _ => self.answers[sender as usize] = Some(arrivals),
            }
        }
        Ok(())
    }

    fn send(&self, kind: u64, to: usize) -> Result<()> {
        let own = self.arrivals.each_ref().map(|arrivals| arrivals.begun());
        let mut message: Message = [0; LENGTH];
        (message[0], message[1]) = (kind, self.communicator.rank as u64);
        message[2..].copy_from_slice(&own);
        self.communicator.send(&message, to)
    }

    /// Finds out who is missing and ends the job, unless the collective completes meanwhile.
    fn end_job(&mut self, purpose: usize, number: u64) -> Result<()> {
        let rank = self.communicator.rank;
        self.answers.fill(None);
        for other in (0..self.hosts.len()).filter(|&other| other != rank) {
            self.send(QUESTION, other)?;
        }
        let begin = Instant::now();
        let missing_answers = |watch: &Watch| watch.answers.iter().filter(|answer| answer.is_none()).count() > 1;
        while begin.elapsed() < ANSWERS && missing_answers(self) {
            std::thread::sleep(PERIOD / 10);
            self.talk()?;
        }
        let arrived = |other: usize| self.answers[other].map(|arrivals| arrivals[purpose] >= number);
        let before_us = (0..rank).filter(|&other| arrived(other) == Some(true)).count();
        std::thread::sleep(TURN * before_us as u32);
        if self.overdue() != Some((purpose, number)) {
            return Ok(());
        }
        let others = || (0..self.hosts.len()).filter(|&other| other != rank);
        let late: Vec<usize> = others().filter(|&other| arrived(other) == Some(false)).collect();
        let silent: Vec<usize> = others().filter(|&other| arrived(other).is_none()).collect();
        let mut reasons = Vec::new();
        if !late.is_empty() {
            reasons.push(format!("not arrived: {}", self.named(&late)));
        }
        if !silent.is_empty() {
            reasons.push(format!("not answering at all: {}", self.named(&silent)));
        }
        if reasons.is_empty() {
            reasons.push("all ranks have arrived, so their messages do not".into());
        }
        eprintln!(
            "Error: {}: {} has not completed within {} s (local.collective_timeout); {}",
            self.named(&[rank]),
            PURPOSES[purpose],
            self.limit.as_secs_f64(),
            reasons.join("; ")
        );
        failure::abort_job(GENERAL_FAILURE)
    }

    fn named(&self, ranks: &[usize]) -> String {
        let name = |&rank: &usize| format!("rank {rank} on {}", self.hosts[rank]);
        ranks.iter().map(name).collect::<Vec<_>>().join(", ")
    }
}
