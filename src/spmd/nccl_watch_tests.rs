use super::*;
use std::sync::Mutex;

/// A GPU that does what a test says.
#[derive(Default)]
struct Gpu {
    arrivals: Arrivals,
    state: Mutex<State>,
}

#[derive(Default, Clone)]
struct State {
    /// Collectives that are on the stream, and that are done.
    told: u64,
    done: u64,
    error: Option<&'static str>,
}

struct FakeLine {
    gpu: Arc<Gpu>,
    mark: u64,
}

impl FakeLine {
    fn state(&self) -> State {
        self.gpu.state.lock().unwrap().clone()
    }
}

impl Line for FakeLine {
    fn purpose(&self) -> &'static str {
        "the sum of the gradients"
    }

    fn arrivals(&self) -> &Arrivals {
        &self.gpu.arrivals
    }

    fn health(&self) -> std::result::Result<(), TorchExtError> {
        self.state()
            .error
            .map_or(Ok(()), |error| Err(TorchExtError(error.into())))
    }

    fn mark(&mut self) -> std::result::Result<u64, TorchExtError> {
        self.mark = self.state().told;
        Ok(self.mark)
    }

    fn is_past_mark(&self) -> std::result::Result<bool, TorchExtError> {
        Ok(self.state().done >= self.mark)
    }

    fn abort(&self) {}
}

fn watched() -> (Arc<Gpu>, Watched) {
    let gpu = Arc::new(Gpu::default());
    let line = Box::new(FakeLine {
        gpu: gpu.clone(),
        mark: 0,
    });
    (gpu, Watched { line, marked: None })
}

impl Gpu {
    fn tell(&self, collectives: u64) {
        for _ in 0..collectives {
            self.arrivals.begin();
        }
        self.state.lock().unwrap().told += collectives;
    }

    fn do_up_to(&self, number: u64) {
        self.state.lock().unwrap().done = number;
    }
}

#[test]
fn what_the_gpu_has_done_counts_as_complete() {
    let (gpu, mut watched) = watched();
    let mut completed_after_look = || {
        watched.look(None).unwrap();
        gpu.arrivals.completed()
    };
    assert_eq!(completed_after_look(), 0);
    gpu.tell(3);
    // Marks behind the third.
    assert_eq!(completed_after_look(), 0);
    gpu.tell(2);
    gpu.do_up_to(2);
    assert_eq!(completed_after_look(), 0);
    gpu.do_up_to(4);
    // Sees the third done, marks behind the fifth.
    assert_eq!(completed_after_look(), 3);
    assert_eq!(completed_after_look(), 3);
    gpu.do_up_to(5);
    assert_eq!(completed_after_look(), 5);
    assert_eq!(gpu.arrivals.overdue(Duration::ZERO), None);
}

/// Between the count and the stream, in a call of NCCL that waits for others.
#[test]
fn a_collective_that_is_not_on_the_stream_is_never_complete() {
    let (gpu, mut watched) = watched();
    gpu.tell(1);
    gpu.arrivals.begin();
    gpu.do_up_to(1);
    for _ in 0..3 {
        watched.look(None).unwrap();
    }
    assert_eq!((gpu.arrivals.completed(), gpu.arrivals.begun()), (1, 2));
    assert_eq!(gpu.arrivals.overdue(Duration::ZERO), Some(2));
}

#[test]
fn errors_and_delays_are_told_with_the_operation() {
    let (gpu, mut watched) = watched();
    gpu.tell(2);
    watched.look(Some(Duration::from_secs(60))).unwrap();
    std::thread::sleep(Duration::from_millis(2));
    let late = watched.look(Some(Duration::from_millis(1))).unwrap_err();
    assert_eq!(
        late,
        "the sum of the gradients, collective 1 on the GPU: has not completed within 0.001 s (local.collective_timeout)"
    );
    gpu.do_up_to(1);
    gpu.state.lock().unwrap().error = Some("remote process exited or there was a network error");
    assert_eq!(
        watched.look(None).unwrap_err(),
        "the sum of the gradients, collective 1 on the GPU: remote process exited or there was a network error"
    );
}
