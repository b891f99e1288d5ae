//! How the kernels of GPUs are put together between ranks; here plain operations stand for them, and threads for ranks.

use super::*;
use std::sync::{Barrier, Mutex};
use tch::{Device, Kind};

const MOMENTUM: f64 = 0.1;
const EPS: f64 = 1e-3;
const CHANNELS: i64 = 5;

extern "C" {
    fn dingo_batch_norm_as_on_device(
        input: *const C_tensor,
        layer: *const RawBatchNorm,
        output: *mut *mut C_tensor,
    ) -> *mut c_char;
}

fn as_on_device(
    input: &Tensor,
    tensors: BatchNormTensors,
    ranks: &Arc<dyn RankStatistics>,
) -> Result<Tensor, TorchExtError> {
    let options = BatchNormOptions {
        statistics: BatchStatistics::AllRanks(ranks),
        momentum: MOMENTUM,
        eps: EPS,
        activation: Activation::None,
    };
    let layer = raw_batch_norm(tensors, options, Level::detected());
    let mut output = std::ptr::null_mut();
    // SAFETY: as in `batch_norm`.
    unsafe {
        check(dingo_batch_norm_as_on_device(input.as_ptr(), &layer, &mut output))?;
        Ok(Tensor::from_ptr(output))
    }
}

/// What the threads share.
struct Meeting {
    barrier: Barrier,
    told: Mutex<Vec<Tensor>>,
}

/// One of the threads.
struct ThreadRank {
    meeting: Arc<Meeting>,
    rank: usize,
}

impl ThreadRank {
    /// What all ranks tell, in their order.
    fn exchange(&self, own: &Tensor) -> Vec<Tensor> {
        self.meeting.told.lock().unwrap()[self.rank] = own.copy();
        self.meeting.barrier.wait();
        let all = self.meeting.told.lock().unwrap().iter().map(Tensor::copy).collect();
        self.meeting.barrier.wait();
        all
    }
}

impl RankStatistics for ThreadRank {
    fn all_gather(&self, local: &Tensor) -> Result<Tensor, String> {
        Ok(Tensor::stack(&self.exchange(local), 0))
    }

    fn all_reduce_sum(&self, values: &Tensor) -> Result<(), String> {
        let sum = Tensor::stack(&self.exchange(values), 0).sum_dim_intlist(0, false, values.kind());
        values.shallow_clone().copy_(&sum);
        Ok(())
    }
}

fn numbers(shape: &[i64], step: f64) -> Tensor {
    let count: i64 = shape.iter().product();
    let values = (Tensor::arange(count, (Kind::Double, Device::Cpu)) * step).sin();
    (values * 2.0 + 3.0).view(shape)
}

/// A pass over these rows, and what comes of it: output, gradients of input, weight and bias, running mean and variance.
fn pass(
    x: &Tensor,
    dy: &Tensor,
    forward: impl FnOnce(&Tensor, BatchNormTensors) -> Result<Tensor, TorchExtError>,
) -> Result<[Tensor; 6], TorchExtError> {
    let x = x.copy().set_requires_grad(true);
    let weight = numbers(&[CHANNELS], 1.3).set_requires_grad(true);
    let bias = numbers(&[CHANNELS], 2.1).set_requires_grad(true);
    let (running_mean, running_var) = (numbers(&[CHANNELS], 0.7), numbers(&[CHANNELS], 1.1) + 2.0);
    let tensors = BatchNormTensors {
        weight: Some(&weight),
        bias: Some(&bias),
        running_mean: Some(&running_mean),
        running_var: Some(&running_var),
        num_batches_tracked: None,
    };
    let y = forward(&x, tensors)?;
    (&y * dy).sum(Kind::Double).backward();
    let gradients = (x.grad(), weight.grad(), bias.grad());
    Ok([
        y.detach(),
        gradients.0,
        gradients.1,
        gradients.2,
        running_mean,
        running_var,
    ])
}

/// The passes of as many ranks as there are counts of rows, one after the other from the same rows.
fn on_ranks(counts: &[i64]) -> Vec<Result<[Tensor; 6], String>> {
    let rows: i64 = counts.iter().sum();
    let (x, dy) = (numbers(&[rows, CHANNELS], 1.7), numbers(&[rows, CHANNELS], 0.9));
    let meeting = Arc::new(Meeting {
        barrier: Barrier::new(counts.len()),
        told: Mutex::new(counts.iter().map(|_| Tensor::new()).collect()),
    });
    let mut first = 0;
    let threads: Vec<_> = counts
        .iter()
        .enumerate()
        .map(|(rank, &count)| {
            let (x, dy) = (x.narrow(0, first, count).copy(), dy.narrow(0, first, count).copy());
            first += count;
            let meeting = meeting.clone();
            std::thread::spawn(move || {
                let ranks: Arc<dyn RankStatistics> = Arc::new(ThreadRank { meeting, rank });
                let outcome = pass(&x, &dy, |x, tensors| as_on_device(x, tensors, &ranks));
                outcome.map_err(|error| error.to_string())
            })
        })
        .collect();
    threads.into_iter().map(|thread| thread.join().unwrap()).collect()
}

#[test]
fn ranks_together_are_one_batch() {
    for counts in [&[7][..], &[4, 9], &[1, 1, 1], &[0, 5, 2], &[0, 0, 3], &[6, 0]] {
        let rows: i64 = counts.iter().sum();
        let (x, dy) = (numbers(&[rows, CHANNELS], 1.7), numbers(&[rows, CHANNELS], 0.9));
        let whole = pass(&x, &dy, |x, t| {
            Ok(x.batch_norm(
                t.weight,
                t.bias,
                t.running_mean,
                t.running_var,
                true,
                MOMENTUM,
                EPS,
                false,
            ))
        })
        .unwrap();
        let ranks: Vec<_> = on_ranks(counts).into_iter().map(Result::unwrap).collect();
        let of = |what: usize| ranks.iter().map(|rank| rank[what].shallow_clone()).collect::<Vec<_>>();
        let close = |found: &Tensor, expected: &Tensor, what: &str| {
            assert!(
                found.allclose(expected, 1e-10, 1e-10, false),
                "{what} with rows {counts:?}"
            );
        };
        close(&Tensor::cat(&of(0), 0), &whole[0], "outputs");
        close(&Tensor::cat(&of(1), 0), &whole[1], "gradients of the input");
        for (what, name) in [(2, "gradient of the weight"), (3, "gradient of the bias")] {
            close(
                &Tensor::stack(&of(what), 0).sum_dim_intlist(0, false, Kind::Double),
                &whole[what],
                name,
            );
        }
        for (what, name) in [(4, "running mean"), (5, "running variance")] {
            of(what).iter().for_each(|found| close(found, &whole[what], name));
        }
    }
}

#[test]
fn one_row_over_all_ranks_is_an_error_on_all() {
    for rank in on_ranks(&[0, 1]) {
        let error = rank.unwrap_err();
        assert!(
            error.contains("more than one value per channel over all ranks, found 1"),
            "{error}"
        );
    }
}
