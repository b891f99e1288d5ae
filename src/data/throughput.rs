//! How fast the data pipeline is, where its time goes, and how fast the processor would allow it to be.

use std::fmt;
use std::time::{Duration, Instant};

use tch::{Device, Kind, Tensor};

use super::pipeline::Pipeline;
use super::DataError;
use crate::torch_ext::product;

/// Edge of the square matrices whose product is the measure of the processor's arithmetic.
const MATRIX: i64 = 1024;

/// Floats (64 MB) whose copy is the measure of its memory: more than caches hold.
const COPIED: i64 = 16 << 20;

/// Seconds per sample on the calling thread, and what they are spent on.
#[derive(Debug, Clone, Copy)]
pub struct Throughput {
    pub batch_size: usize,
    /// A whole batch, from indices to tensors.
    pub total: f64,
    /// Drawing random values (detector noise apart).
    pub draws: f64,
    /// Reading and decompressing polarizations.
    pub polarizations: f64,
    /// Generating and adding detector noise.
    pub noise: f64,
    pub bound: Bound,
}

/// What arithmetic and memory leave possible: as measured between the batches, on the same thread.
#[derive(Debug, Clone, Copy)]
pub struct Bound {
    /// Operations of a sample's decompression, were it one product of real matrices: 8 for each complex multiplication.
    pub flops: f64,
    /// Bytes of a sample that move between memory and processor: what is read from the dataset, what the network is given.
    pub bytes: f64,
    /// Operations per second of a large product of matrices.
    pub peak_flops: f64,
    /// Bytes per second, read and written, of a large copy.
    pub peak_bytes: f64,
}

impl Bound {
    /// The least time of a sample, in s.
    pub fn seconds(&self) -> f64 {
        self.flops / self.peak_flops + self.bytes / self.peak_bytes
    }
}

impl Throughput {
    pub fn samples_per_second(&self) -> f64 {
        1.0 / self.total
    }

    /// The bound's time over the time taken. It may exceed 1: the decompression needs three quarters of the operations of a
    /// plain product.
    pub fn share_of_bound(&self) -> f64 {
        self.bound.seconds() / self.total
    }
}

impl fmt::Display for Throughput {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let micro = |seconds: f64| seconds * 1e6;
        let rest = self.total - self.draws - self.polarizations - self.noise;
        writeln!(
            f,
            "data pipeline, batch {}: {:.0} samples/s; {:.1} us a sample: polarizations {:.1}, noise {:.1}, draws {:.1}, \
             projection and packing {:.1}",
            self.batch_size,
            self.samples_per_second(),
            micro(self.total),
            micro(self.polarizations),
            micro(self.noise),
            micro(self.draws),
            micro(rest)
        )?;
        let bound = &self.bound;
        write!(
            f,
            "bound: {:.0} samples/s ({:.1} MFLOP a sample at {:.0} GFLOP/s, {:.0} kB at {:.1} GB/s); reached {:.0}% of it",
            1.0 / bound.seconds(),
            bound.flops / 1e6,
            bound.peak_flops / 1e9,
            bound.bytes / 1e3,
            bound.peak_bytes / 1e9,
            100.0 * self.share_of_bound()
        )
    }
}

/// Something that takes time, with the number of the repetition.
type Work<'a> = dyn FnMut(u64) -> Result<(), DataError> + 'a;

/// Measures the pipeline on the calling thread with batches of `batch_size` samples. Each figure is the median over the
/// repetitions that fit into `duration`, after one that is not counted. The repetitions of all figures take turns, so that
/// whatever else the machine does meets all of them alike.
pub fn measure(pipeline: &Pipeline, batch_size: usize, duration: Duration) -> Result<Throughput, DataError> {
    let samples = pipeline.dataset().len();
    // Scattered over the dataset, as a shuffled epoch is.
    let indices: Vec<usize> = (0..batch_size).map(|i| (i * 7919 + 13) % samples).collect();
    let square = || Tensor::f_rand([MATRIX, MATRIX], (Kind::Float, Device::Cpu));
    let (left, right, mut result) = (square()?, square()?, square()?);
    let (source, mut copy) = (
        Tensor::f_ones([COPIED], (Kind::Float, Device::Cpu))?,
        Tensor::f_zeros([COPIED], (Kind::Float, Device::Cpu))?,
    );
    let mut works: [Box<Work>; 6] = [
        Box::new(|epoch| pipeline.batch(&indices, epoch).map(drop)),
        Box::new(|epoch| {
            std::hint::black_box(pipeline.draws(&indices, epoch));
            Ok(())
        }),
        Box::new(|_| pipeline.read_polarizations(&indices)),
        Box::new(|epoch| {
            let mut draws = pipeline.draws(&indices, epoch);
            draws.noise = None;
            pipeline.assemble(&indices, &draws).map(drop)
        }),
        Box::new(|_| Ok(product(&left, &right, &mut result)?)),
        Box::new(|_| Ok(copy.f_copy_(&source)?)),
    ];
    let mut times: [Vec<f64>; 6] = Default::default();
    let start = Instant::now();
    for epoch in 0.. {
        for (work, times) in works.iter_mut().zip(&mut times) {
            let begin = Instant::now();
            work(epoch)?;
            times.push(begin.elapsed().as_secs_f64());
        }
        if epoch >= 3 && start.elapsed() >= duration {
            break;
        }
    }
    let [batch, draws, polarizations, quiet, matrices, copying] = times.map(median_after_the_first);
    let per_sample = |seconds: f64| seconds / batch_size as f64;
    Ok(Throughput {
        batch_size,
        total: per_sample(batch),
        draws: per_sample(draws),
        polarizations: per_sample(polarizations),
        noise: per_sample((batch - quiet).max(0.0)),
        bound: Bound {
            flops: pipeline.dataset().decompression_flops(),
            bytes: pipeline.bytes_per_sample(),
            peak_flops: 2.0 * (MATRIX as f64).powi(3) / matrices,
            peak_bytes: 8.0 * COPIED as f64 / copying,
        },
    })
}

fn median_after_the_first(mut times: Vec<f64>) -> f64 {
    times.remove(0);
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}
