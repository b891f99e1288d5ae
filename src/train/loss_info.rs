//! Average loss and times of an epoch, and the line that reports a step (Dingo's `LossInfo`).

use super::{StepClock, StepPart, TrainError};
use crate::nn::Mode;
use std::fmt;
use std::time::{Duration, Instant};
use tch::{Device, Kind, Tensor};

/// What the time since the last call of [`LossInfo::lap`] was spent on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    Dataloader,
    Network,
    /// Waiting for the other ranks' gradients and losses.
    Aggregation,
}

/// How many there are.
pub const PHASES: usize = 3;

/// How often a line is due. The first and last batch of an epoch always get one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum PrintEvery {
    /// Every so many batches; Dingo prints every one.
    Batches(u64),
    Seconds(f64),
}

/// What an epoch's lines say beside losses and times.
#[derive(Debug, Clone)]
pub struct EpochInfo {
    /// `Train` is printed as such, `Eval` as `Test`.
    pub mode: Mode,
    pub epoch: u64,
    /// Samples in the epoch's dataset, over all ranks.
    pub dataset_len: u64,
    /// Samples of a batch, over all ranks.
    pub batch_size: u64,
    /// Whether lines show the time of [`Phase::Aggregation`], as Dingo's do with several GPUs.
    pub distributed: bool,
}

/// Follows one epoch. Losses stay on their device until a line or the average is asked for, so that following them
/// never makes a step wait.
#[derive(Debug)]
pub struct LossInfo {
    info: EpochInfo,
    print_every: PrintEvery,
    last_printed: Option<Instant>,
    /// Handed in and not read yet: (sum of losses, samples).
    unread: Vec<(Tensor, u64)>,
    loss: Average,
    /// Time per step of each phase.
    times: [Average; PHASES],
    /// Of this rank, not handed out yet.
    own_times: [Duration; PHASES],
    lap_start: Instant,
    iteration: u64,
}

impl LossInfo {
    pub fn new(info: EpochInfo, print_every: PrintEvery) -> LossInfo {
        LossInfo {
            info,
            print_every,
            last_printed: None,
            unread: Vec::new(),
            loss: Average::default(),
            times: Default::default(),
            own_times: Default::default(),
            lap_start: Instant::now(),
            iteration: 0,
        }
    }

    /// Ends a phase: the time since the last lap counts for it. A step may have the same phase several times.
    pub fn lap(&mut self, phase: Phase) {
        let now = Instant::now();
        self.own_times[phase as usize] += now - self.lap_start;
        self.lap_start = now;
    }

    /// This rank's seconds in each phase since the last call, to be held against the other ranks'.
    pub fn take_times(&mut self) -> [f64; PHASES] {
        std::mem::take(&mut self.own_times).map(|time| time.as_secs_f64())
    }

    /// Ends an optimizer step or a test batch: the seconds that the slowest rank spent in each phase. They are those that
    /// [`LossInfo::take_times`] gave the ranks in time to be told: what a step does after that is shown with the next one.
    pub fn end_step(&mut self, slowest: [f64; PHASES]) {
        for (average, time) in self.times.iter_mut().zip(slowest) {
            average.add(time, 1.0);
        }
        self.iteration += 1;
    }

    /// The loss of a step or batch that has ended: the sum of its samples' losses over all ranks, a tensor with one element,
    /// and the number of these samples. The tensor is read later: it must not be overwritten.
    pub fn update(&mut self, loss_sum: &Tensor, samples: u64) -> Result<(), TrainError> {
        self.unread.push((loss_sum.f_detach()?.f_reshape([])?, samples));
        Ok(())
    }

    /// What [`LossInfo::continue_from`] needs in a later run: the sum of the losses so far and the number of their samples.
    /// Waits for the device.
    pub fn sums(&mut self) -> Result<[f64; 2], TrainError> {
        self.read()?;
        Ok([self.loss.sum, self.loss.weight])
    }

    /// Goes on with an epoch that an earlier run began. Times and steps count from here.
    pub fn continue_from(&mut self, [sum, samples]: [f64; 2]) {
        self.loss.sum = sum;
        self.loss.weight = samples;
    }

    /// Steps since this was made.
    pub fn iteration(&self) -> u64 {
        self.iteration
    }

    /// Mean loss over the epoch's samples so far; NaN when there are none. Waits for the device.
    pub fn average(&mut self) -> Result<f64, TrainError> {
        self.read()?;
        Ok(self.loss.mean())
    }

    /// The line for the step that ended with this batch of the epoch, counted from 0, when one is due. Waits for the
    /// device only then.
    pub fn line(&mut self, batch_index: u64) -> Result<Option<String>, TrainError> {
        if !self.is_due(batch_index) {
            return Ok(None);
        }
        self.last_printed = Some(Instant::now());
        self.read()?;
        Ok(Some(self.format_line(batch_index)))
    }

    fn is_due(&self, batch_index: u64) -> bool {
        let is_last = (batch_index + 1) * self.info.batch_size >= self.info.dataset_len;
        let is_due = match self.print_every {
            PrintEvery::Batches(batches) => batch_index % batches.max(1) == 0,
            PrintEvery::Seconds(seconds) => self
                .last_printed
                .is_none_or(|printed| printed.elapsed().as_secs_f64() >= seconds),
        };
        is_last || is_due
    }

    /// Brings the losses to the host, all in one copy.
    fn read(&mut self) -> Result<(), TrainError> {
        if self.unread.is_empty() {
            return Ok(());
        }
        let (sums, samples): (Vec<Tensor>, Vec<u64>) = self.unread.drain(..).unzip();
        let sums = Tensor::f_stack(&sums, 0)?.f_to(Device::Cpu)?.f_to_kind(Kind::Double)?;
        for (sum, samples) in Vec::<f64>::try_from(&sums)?.into_iter().zip(samples) {
            self.loss.add(sum / samples as f64, samples as f64);
        }
        Ok(())
    }

    fn format_line(&self, batch_index: u64) -> String {
        let EpochInfo {
            mode,
            epoch,
            dataset_len,
            batch_size,
            distributed,
        } = self.info;
        let name = if mode.is_training() { "Train" } else { "Test" };
        let done = (batch_index + 1) * batch_size;
        let percent = (100.0 * done as f64 / dataset_len as f64).min(100.0);
        let done = done.min(dataset_len);
        let [dataloader, network, aggregation] = &self.times;
        let loss = &self.loss;
        let mut line = format!(
            "{name} Epoch: {epoch} [{done}/{dataset_len} ({percent:.0}%)]\t\tLoss: {loss}\t\t\
             Time Dataloader: {dataloader}\t\tTime Network: {network}"
        );
        if distributed {
            line += &format!("\t\tTime Loss Aggregation: {aggregation}");
        }
        line
    }
}

impl StepClock for LossInfo {
    fn lap(&mut self, part: StepPart) {
        self.lap(match part {
            StepPart::Data => Phase::Dataloader,
            StepPart::Forward | StepPart::Backward | StepPart::Update => Phase::Network,
            StepPart::Reduction => Phase::Aggregation,
        });
    }

    fn take_times(&mut self) -> [f64; PHASES] {
        self.take_times()
    }
}

/// A weighted mean and the last value that entered it; displayed as `last (mean)`.
#[derive(Debug, Clone, Default)]
struct Average {
    sum: f64,
    weight: f64,
    last: f64,
}

impl Average {
    fn add(&mut self, value: f64, weight: f64) {
        self.sum += value * weight;
        self.weight += weight;
        self.last = value;
    }

    fn mean(&self) -> f64 {
        self.sum / self.weight
    }
}

impl fmt::Display for Average {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{} ({})", Fixed3(self.last), Fixed3(self.mean()))
    }
}

/// Three decimals; not-a-number as Python spells it.
struct Fixed3(f64);

impl fmt::Display for Fixed3 {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        if self.0.is_nan() {
            f.write_str("nan")
        } else {
            write!(f, "{:.3}", self.0)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(mode: Mode, epoch: u64, dataset_len: u64, batch_size: u64, distributed: bool) -> EpochInfo {
        EpochInfo {
            mode,
            epoch,
            dataset_len,
            batch_size,
            distributed,
        }
    }

    /// One line per (loss, samples, seconds of each phase).
    fn lines(info: EpochInfo, steps: &[(f64, u64, [f64; 3])]) -> Vec<String> {
        let mut loss_info = LossInfo::new(info, PrintEvery::Batches(1));
        let line = |(batch, &(loss, samples, seconds)): (usize, &(f64, u64, [f64; 3]))| {
            loss_info.end_step(seconds);
            loss_info.update(&Tensor::from(loss * samples as f64), samples).unwrap();
            loss_info.line(batch as u64).unwrap().unwrap()
        };
        steps.iter().enumerate().map(line).collect()
    }

    /// What Dingo's class printed for the same numbers on one device.
    #[test]
    fn lines_are_dingos() {
        let steps = [
            (14.61255074, 400, [0.0123, 2.0005, 0.0]),
            (-0.0004, 400, [1.5, 0.75, 0.0]),
            (f64::NAN, 200, [0.25, 0.0015, 0.0]),
        ];
        let expected = [
            "Train Epoch: 1 [400/1000 (40%)]\t\tLoss: 14.613 (14.613)\t\t\
             Time Dataloader: 0.012 (0.012)\t\tTime Network: 2.001 (2.001)",
            "Train Epoch: 1 [800/1000 (80%)]\t\tLoss: -0.000 (7.306)\t\t\
             Time Dataloader: 1.500 (0.756)\t\tTime Network: 0.750 (1.375)",
            "Train Epoch: 1 [1000/1000 (100%)]\t\tLoss: nan (nan)\t\t\
             Time Dataloader: 0.250 (0.587)\t\tTime Network: 0.002 (0.917)",
        ];
        assert_eq!(lines(info(Mode::Train, 1, 1000, 400, false), &steps), expected);
    }

    /// The same with several devices.
    #[test]
    fn distributed_lines_are_dingos() {
        let steps = [
            (3.25, 100, [0.1, 1.0, 0.001]),
            (1.125, 100, [0.2, 2.0, 0.0025]),
            (12345.678, 100, [0.3, 3.0, 0.5]),
        ];
        let expected = [
            "Test Epoch: 12 [100/800 (12%)]\t\tLoss: 3.250 (3.250)\t\t\
             Time Dataloader: 0.100 (0.100)\t\tTime Network: 1.000 (1.000)\t\tTime Loss Aggregation: 0.001 (0.001)",
            "Test Epoch: 12 [200/800 (25%)]\t\tLoss: 1.125 (2.188)\t\t\
             Time Dataloader: 0.200 (0.150)\t\tTime Network: 2.000 (1.500)\t\tTime Loss Aggregation: 0.003 (0.002)",
            "Test Epoch: 12 [300/800 (38%)]\t\tLoss: 12345.678 (4116.684)\t\t\
             Time Dataloader: 0.300 (0.200)\t\tTime Network: 3.000 (2.000)\t\tTime Loss Aggregation: 0.500 (0.168)",
        ];
        assert_eq!(lines(info(Mode::Eval, 12, 800, 100, true), &steps), expected);
    }

    #[test]
    fn losses_wait_unread_until_a_line_is_due() {
        let mut loss_info = LossInfo::new(info(Mode::Train, 1, 100, 10, false), PrintEvery::Batches(4));
        let mut printed = Vec::new();
        for batch in 0..10 {
            loss_info.end_step([0.0; PHASES]);
            loss_info.update(&Tensor::from(batch as f32 * 10.0), 10).unwrap();
            if let Some(line) = loss_info.line(batch).unwrap() {
                assert!(loss_info.unread.is_empty());
                assert!(
                    line.contains(&format!("Loss: {batch}.000 ({:.3})", batch as f64 / 2.0)),
                    "{line}"
                );
                printed.push(batch);
            }
        }
        assert_eq!(printed, [0, 4, 8, 9], "every fourth batch and the last");
        assert_eq!(loss_info.iteration(), 10);
        assert_eq!(loss_info.average().unwrap(), 4.5);
    }

    #[test]
    fn the_average_weighs_samples_not_steps() {
        let mut loss_info = LossInfo::new(info(Mode::Eval, 1, 4, 3, false), PrintEvery::Seconds(1e9));
        assert!(loss_info.average().unwrap().is_nan());
        loss_info.update(&Tensor::from(3.0f32), 3).unwrap();
        loss_info.update(&Tensor::from_slice(&[5.0f32]), 1).unwrap();
        assert_eq!(loss_info.average().unwrap(), 2.0);
    }

    /// To the last bit, wherever it is cut.
    #[test]
    fn an_interrupted_epoch_has_the_same_average() {
        let losses = [0.1, 7.3, -2.7, 1e-3, 5.55];
        let new = || LossInfo::new(info(Mode::Train, 1, 50, 10, false), PrintEvery::Seconds(3600.0));
        let add = |info: &mut LossInfo, losses: &[f64]| {
            for &loss in losses {
                info.end_step([0.0; PHASES]);
                info.update(&Tensor::from(loss), 10).unwrap();
            }
        };
        let mut whole = new();
        add(&mut whole, &losses);
        for cut in 0..=losses.len() {
            let (mut first, mut second) = (new(), new());
            add(&mut first, &losses[..cut]);
            second.continue_from(first.sums().unwrap());
            add(&mut second, &losses[cut..]);
            assert_eq!(second.average().unwrap().to_bits(), whole.average().unwrap().to_bits());
            assert_eq!(first.iteration() + second.iteration(), 5);
        }
    }

    #[test]
    fn a_terminal_gets_a_line_now_and_then() {
        let mut loss_info = LossInfo::new(info(Mode::Train, 1, 100, 10, false), PrintEvery::Seconds(3600.0));
        let mut printed = Vec::new();
        for batch in 0..10 {
            loss_info.update(&Tensor::from(1.0f32), 10).unwrap();
            printed.extend(loss_info.line(batch).unwrap().map(|_| batch));
        }
        assert_eq!(printed, [0, 9], "the first and the last batch");
    }
}
