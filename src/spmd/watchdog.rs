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

/// The collectives of one communicator: what they are for, and how far they are.
#[derive(Clone)]
pub(super) struct Watched {
    pub purpose: &'static str,
    pub arrivals: Arc<Arrivals>,
}

/// A message between watchdogs: question or answer, the sender, and then its arrivals at what is watched, in order.
const HEAD: usize = 2;
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
    /// The same in the same order on all ranks.
    watched: Vec<Watched>,
    hosts: Vec<String>,
    limit: Duration,
    stop: Arc<AtomicBool>,
    /// What each rank has answered.
    answers: Vec<Option<Vec<u64>>>,
}

impl Watchdog {
    pub fn start(
        communicator: Arc<Communicator>,
        watched: Vec<Watched>,
        hosts: Vec<String>,
        limit: Duration,
    ) -> Result<Watchdog> {
        let stop = Arc::new(AtomicBool::new(false));
        let mut watch = Watch {
            communicator,
            watched,
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
            if let Some((place, number)) = self.overdue() {
                self.end_job(place, number)?;
            }
        }
        Ok(())
    }

    /// A collective that has been under way for too long: its place in what is watched, and its number there.
    fn overdue(&self) -> Option<(usize, u64)> {
        let overdue = |(place, watched): (usize, &Watched)| Some((place, watched.arrivals.overdue(self.limit)?));
        self.watched.iter().enumerate().find_map(overdue)
    }

    /// Answers the others' questions and takes note of their answers.
    fn talk(&mut self) -> Result<()> {
        let mut message = vec![0; HEAD + self.watched.len()];
        while self.communicator.receive_if_there(&mut message)? {
            let (kind, sender) = (message[0], message[1] as usize);
            match kind {
                QUESTION => self.send(ANSWER, sender)?,
                _ => self.answers[sender] = Some(message[HEAD..].to_vec()),
            }
        }
        Ok(())
    }

    fn send(&self, kind: u64, to: usize) -> Result<()> {
        let mut message = vec![kind, self.communicator.rank as u64];
        message.extend(self.watched.iter().map(|watched| watched.arrivals.begun()));
        self.communicator.send(&message, to)
    }

    /// Finds out who is missing and ends the job, unless the collective completes meanwhile.
    fn end_job(&mut self, place: usize, number: u64) -> Result<()> {
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
        let arrived = |other: usize| self.answers[other].as_ref().map(|arrivals| arrivals[place] >= number);
        let before_us = (0..rank).filter(|&other| arrived(other) == Some(true)).count();
        std::thread::sleep(TURN * before_us as u32);
        if self.overdue() != Some((place, number)) {
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
            self.watched[place].purpose,
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
