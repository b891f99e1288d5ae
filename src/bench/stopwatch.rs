//! Times a step and its parts.

use crate::train::{Phase, StepClock, StepPart, PHASES};
use serde::Serialize;
use std::time::Instant;
use tch::Device;

/// Seconds of a step's parts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct PartTimes {
    pub data: f64,
    pub forward: f64,
    pub backward: f64,
    /// What the reduction took after the backward pass.
    pub reduction: f64,
    pub update: f64,
}

impl PartTimes {
    pub fn total(&self) -> f64 {
        self.data + self.forward + self.backward + self.reduction + self.update
    }

    /// Of each part, the median over steps.
    pub fn medians(steps: &[PartTimes]) -> PartTimes {
        let median =
            |part: fn(&PartTimes) -> f64| super::statistics::median(&steps.iter().map(part).collect::<Vec<_>>());
        PartTimes {
            data: median(|times| times.data),
            forward: median(|times| times.forward),
            backward: median(|times| times.backward),
            reduction: median(|times| times.reduction),
            update: median(|times| times.update),
        }
    }
}

/// Runs from `start` to `stop`, over one step. The parts of a step on a device that computes asynchronously are those of
/// the host; the whole step is the device's.
pub struct Stopwatch {
    device: Device,
    begin: Instant,
    lap: Instant,
    parts: PartTimes,
    told: [f64; PHASES],
}

impl Stopwatch {
    pub fn start(device: Device) -> Stopwatch {
        synchronize(device);
        let now = Instant::now();
        Stopwatch {
            device,
            begin: now,
            lap: now,
            parts: PartTimes::default(),
            told: [0.0; PHASES],
        }
    }

    /// Seconds since `start`, once the device has done all it was given; and the parts.
    pub fn stop(self) -> (f64, PartTimes) {
        synchronize(self.device);
        (self.begin.elapsed().as_secs_f64(), self.parts)
    }
}

impl StepClock for Stopwatch {
    fn lap(&mut self, part: StepPart) {
        let now = Instant::now();
        let seconds = (now - self.lap).as_secs_f64();
        self.lap = now;
        let (place, phase) = match part {
            StepPart::Data => (&mut self.parts.data, Phase::Dataloader),
            StepPart::Forward => (&mut self.parts.forward, Phase::Network),
            StepPart::Backward => (&mut self.parts.backward, Phase::Network),
            StepPart::Reduction => (&mut self.parts.reduction, Phase::Aggregation),
            StepPart::Update => (&mut self.parts.update, Phase::Network),
        };
        *place += seconds;
        self.told[phase as usize] += seconds;
    }

    fn take_times(&mut self) -> [f64; PHASES] {
        std::mem::take(&mut self.told)
    }
}

/// Waits until the device has done what it was given; the CPU always has.
pub fn synchronize(device: Device) {
    if let Device::Cuda(index) = device {
        tch::Cuda::synchronize(index as i64);
    }
}
