use super::*;
use std::collections::HashMap;

/// A piece of work on a GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Work {
    /// The computation writes a bucket.
    Fill(usize),
    Reduce(usize),
    /// The computation reads a bucket.
    Use(usize),
    /// A mark, or the end of a wait for one.
    Point,
}

#[derive(Clone, Copy)]
enum Queue {
    Computation,
    Communication,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Mark {
    Full(usize),
    Reduced(usize),
}

/// Everything that a GPU was told, as CUDA understands it: a queue does one thing after the other, a wait is for the mark as
/// it was last made, and all else may happen at the same time.
#[derive(Default)]
struct Recording {
    work: Vec<Work>,
    /// For each piece, those that come before it.
    after: Vec<Vec<usize>>,
    last: [Option<usize>; 2],
    marks: HashMap<Mark, usize>,
}

impl Recording {
    fn tell(&mut self, queue: Queue, work: Work) -> usize {
        let place = self.work.len();
        self.work.push(work);
        self.after.push(self.last[queue as usize].into_iter().collect());
        self.last[queue as usize] = Some(place);
        place
    }

    fn mark(&mut self, queue: Queue, mark: Mark) {
        let place = self.tell(queue, Work::Point);
        self.marks.insert(mark, place);
    }

    fn wait(&mut self, queue: Queue, mark: Mark) {
        let before = self.marks.get(&mark).copied();
        let place = self.tell(queue, Work::Point);
        self.after[place].extend(before);
    }

    /// Whether a GPU must have done `first` before it begins `second`.
    fn is_ordered(&self, first: usize, second: usize) -> bool {
        first == second || self.after[second].iter().any(|&before| self.is_ordered(first, before))
    }

    fn places(&self, work: Work) -> Vec<usize> {
        (0..self.work.len()).filter(|&place| self.work[place] == work).collect()
    }

    /// What could go wrong with these many buckets.
    fn faults(&self, buckets: usize) -> Vec<String> {
        let mut faults = Vec::new();
        for bucket in 0..buckets {
            let of = |work: fn(usize) -> Work| self.places(work(bucket));
            let (fills, reductions, uses) = (of(Work::Fill), of(Work::Reduce), of(Work::Use));
            assert!(fills.len() == uses.len() && !fills.is_empty());
            if reductions.len() != fills.len() {
                faults.push(format!("bucket {bucket} is reduced {} times", reductions.len()));
                continue;
            }
            for step in 0..fills.len() {
                if !self.is_ordered(fills[step], reductions[step]) {
                    faults.push(format!("bucket {bucket} is reduced before it is full"));
                }
                if !self.is_ordered(reductions[step], uses[step]) {
                    faults.push(format!("bucket {bucket} is used before it is reduced"));
                }
            }
        }
        let order: Vec<usize> = self.work.iter().filter_map(reduced).collect();
        if order
            .iter()
            .enumerate()
            .any(|(place, &bucket)| bucket != place % buckets)
        {
            faults.push(format!("buckets are reduced in the order {order:?}"));
        }
        faults
    }
}

fn reduced(work: &Work) -> Option<usize> {
    match work {
        Work::Reduce(bucket) => Some(*bucket),
        _ => None,
    }
}

/// A call that is left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Without {
    Nothing,
    MarkFull,
    CommunicationWaits,
    MarkReduced,
    ComputationWaits,
}

struct RecordingStreams {
    recording: Arc<Mutex<Recording>>,
    without: Without,
    /// Reducing this bucket fails.
    broken: Option<usize>,
}

impl RecordingStreams {
    fn record(&self, call: Without, record: impl FnOnce(&mut Recording)) -> Result<()> {
        if call != self.without {
            record(&mut self.recording.lock().unwrap());
        }
        Ok(())
    }
}

impl Streams for RecordingStreams {
    fn mark_full(&mut self, bucket: usize) -> Result<()> {
        self.record(Without::MarkFull, |gpu| {
            gpu.mark(Queue::Computation, Mark::Full(bucket))
        })
    }

    fn communication_waits(&mut self, bucket: usize) -> Result<()> {
        self.record(Without::CommunicationWaits, |gpu| {
            gpu.wait(Queue::Communication, Mark::Full(bucket))
        })
    }

    fn all_reduce(&mut self, bucket: usize) -> Result<()> {
        if self.broken == Some(bucket) {
            return Err(SpmdError::Usage("the GPU is gone".into()));
        }
        self.recording
            .lock()
            .unwrap()
            .tell(Queue::Communication, Work::Reduce(bucket));
        Ok(())
    }

    fn mark_reduced(&mut self, bucket: usize) -> Result<()> {
        self.record(Without::MarkReduced, |gpu| {
            gpu.mark(Queue::Communication, Mark::Reduced(bucket))
        })
    }

    fn computation_waits(&mut self, bucket: usize) -> Result<()> {
        self.record(Without::ComputationWaits, |gpu| {
            gpu.wait(Queue::Computation, Mark::Reduced(bucket))
        })
    }

    fn end_step(&mut self) -> Result<Times> {
        Ok(Times::default())
    }
}

fn transport(buckets: usize, overlap: bool, without: Without) -> (StreamTransport, Arc<Mutex<Recording>>) {
    let recording = Arc::new(Mutex::new(Recording::default()));
    let streams = RecordingStreams {
        recording: recording.clone(),
        without,
        broken: None,
    };
    (StreamTransport::new(Box::new(streams), buckets, overlap), recording)
}

/// Steps with buckets that are full in the orders given, and what could go wrong in them.
fn faults(orders: &[&[usize]], overlap: bool, without: Without) -> Vec<String> {
    let buckets = orders[0].len();
    let (mut transport, recording) = transport(buckets, overlap, without);
    let tell = |work| recording.lock().unwrap().tell(Queue::Computation, work);
    let hand_over = transport.hand_over();
    for order in orders {
        for &bucket in *order {
            tell(Work::Fill(bucket));
            hand_over(bucket);
        }
        transport.finish().unwrap();
        for bucket in 0..buckets {
            tell(Work::Use(bucket));
        }
    }
    let found = recording.lock().unwrap().faults(buckets);
    found
}

#[test]
fn every_wait_comes_before_its_use_in_any_order() {
    let orders: [&[usize]; 6] = [&[0, 1, 2], &[2, 1, 0], &[1, 0, 2], &[1, 2, 0], &[2, 0, 1], &[0, 2, 1]];
    for overlap in [true, false] {
        assert_eq!(faults(&orders, overlap, Without::Nothing), Vec::<String>::new());
        assert_eq!(faults(&[&[0], &[0]], overlap, Without::Nothing), Vec::<String>::new());
    }
}

/// So that the test above can fail.
#[test]
fn a_call_left_out_is_noticed() {
    for (without, expected) in [
        (Without::MarkFull, "reduced before it is full"),
        (Without::CommunicationWaits, "reduced before it is full"),
        (Without::MarkReduced, "used before it is reduced"),
        (Without::ComputationWaits, "used before it is reduced"),
    ] {
        let found = faults(&[&[1, 0, 2], &[0, 1, 2]], true, without);
        assert!(
            found.iter().any(|fault| fault.contains(expected)),
            "{without:?}: {found:?}"
        );
    }
}

/// A bucket is reduced as soon as it and those before it are full, not at the end.
#[test]
fn buckets_are_reduced_while_others_fill() {
    let (mut transport, recording) = transport(3, true, Without::Nothing);
    let hand_over = transport.hand_over();
    let reduced_so_far = || {
        recording
            .lock()
            .unwrap()
            .work
            .iter()
            .filter_map(reduced)
            .collect::<Vec<_>>()
    };
    hand_over(1);
    assert_eq!(reduced_so_far(), Vec::<usize>::new());
    hand_over(0);
    assert_eq!(reduced_so_far(), [0, 1]);
    let unfinished = transport.finish().unwrap_err().to_string();
    assert!(unfinished.contains("2 of 3 buckets"), "{unfinished}");
    hand_over(2);
    assert_eq!(reduced_so_far(), [0, 1, 2]);
    transport.finish().unwrap();
}

/// A hook has no one to tell; whoever waits for the gradients is told.
#[test]
fn what_fails_in_a_hook_is_told_at_the_end() {
    let streams = RecordingStreams {
        recording: Arc::default(),
        without: Without::Nothing,
        broken: Some(1),
    };
    let mut transport = StreamTransport::new(Box::new(streams), 2, true);
    let hand_over = transport.hand_over();
    std::thread::spawn(move || [0, 1].map(|bucket| hand_over(bucket)))
        .join()
        .unwrap();
    assert!(transport.finish().unwrap_err().to_string().contains("the GPU is gone"));
}
