//! What the ranks of a run say to one another in its steps, and how long that takes.

use crate::spmd::{hidden_share, Reduced, Traffic, World};
use std::sync::Arc;
use std::time::Duration;

/// Counts the collectives of steps: those of batch normalization and of the gradients, no others.
pub struct Communication {
    traffic: Arc<Traffic>,
    /// Collectives and bytes when the step under way began.
    at_begin: [u64; 2],
    sums: Sums,
}

#[derive(Default)]
struct Sums {
    steps: u64,
    collectives: u64,
    bytes: u64,
    reducing: Duration,
    waited: Duration,
}

impl Communication {
    pub fn new(world: &World) -> Communication {
        Communication {
            traffic: world.traffic().clone(),
            at_begin: [0; 2],
            sums: Sums::default(),
        }
    }

    fn now(&self) -> [u64; 2] {
        [self.traffic.collectives(), self.traffic.bytes()]
    }

    /// A step begins.
    pub fn begin(&mut self) {
        self.at_begin = self.now();
    }

    /// Its gradients are reduced.
    pub fn end(&mut self, reduced: &Reduced) {
        let ([collectives, bytes], [collectives_before, bytes_before]) = (self.now(), self.at_begin);
        self.sums.steps += 1;
        self.sums.collectives += collectives - collectives_before;
        self.sums.bytes += bytes - bytes_before;
        self.sums.reducing += reduced.communicating;
        self.sums.waited += reduced.waited;
    }

    /// A line about the steps since the last one; none where there was no communication.
    pub fn take_report(&mut self) -> Option<String> {
        let sums = std::mem::take(&mut self.sums);
        if sums.collectives == 0 {
            return None;
        }
        let per_step = |sum: f64| sum / sums.steps as f64;
        let (reducing, waited) = (sums.reducing.as_secs_f64(), sums.waited.as_secs_f64());
        let hidden = hidden_share(reducing, waited).unwrap_or(0.0);
        let collectives = per_step(sums.collectives as f64);
        Some(format!(
            "Communication per step: {collectives:.0} collective{}, {:.2} MB; the gradients take {:.1} ms, {:.0}% of it hidden \
             behind the backward pass.",
            if collectives == 1.0 { "" } else { "s" },
            per_step(sums.bytes as f64) / f64::from(1 << 20),
            per_step(1e3 * reducing),
            100.0 * hidden
        ))
    }
}
