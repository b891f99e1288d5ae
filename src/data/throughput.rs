//! How fast the data pipeline is, and where its time goes.

use std::fmt;
use std::time::{Duration, Instant};

use super::pipeline::Pipeline;
use super::DataError;

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
}

impl Throughput {
    pub fn samples_per_second(&self) -> f64 {
        1.0 / self.total
    }
}

impl fmt::Display for Throughput {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let micro = |seconds: f64| seconds * 1e6;
        let rest = self.total - self.draws - self.polarizations - self.noise;
        write!(
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
        )
    }
}

/// Measures the pipeline on the calling thread with batches of `batch_size` samples. Each figure is the median over the
/// repetitions that fit into `duration`, after one that is not counted.
pub fn measure(pipeline: &Pipeline, batch_size: usize, duration: Duration) -> Result<Throughput, DataError> {
    let samples = pipeline.dataset().len();
    // Scattered over the dataset, as a shuffled epoch is.
    let indices: Vec<usize> = (0..batch_size).map(|i| (i * 7919 + 13) % samples).collect();
    let mut epoch = 0;
    let mut median = |work: &mut dyn FnMut(u64) -> Result<(), DataError>| {
        let mut times = Vec::new();
        work(epoch)?;
        let start = Instant::now();
        while times.len() < 3 || start.elapsed() < duration / 4 {
            epoch += 1;
            let begin = Instant::now();
            work(epoch)?;
            times.push(begin.elapsed().as_secs_f64());
        }
        times.sort_by(f64::total_cmp);
        Ok::<_, DataError>(times[times.len() / 2] / batch_size as f64)
    };
    let total = median(&mut |epoch| pipeline.batch(&indices, epoch).map(drop))?;
    let draws = median(&mut |epoch| {
        std::hint::black_box(pipeline.draws(&indices, epoch));
        Ok(())
    })?;
    let polarizations = median(&mut |_| pipeline.read_polarizations(&indices))?;
    let quiet = median(&mut |epoch| {
        let mut draws = pipeline.draws(&indices, epoch);
        draws.noise = None;
        pipeline.assemble(&indices, &draws).map(drop)
    })?;
    Ok(Throughput {
        batch_size,
        total,
        draws,
        polarizations,
        noise: (total - quiet).max(0.0),
    })
}
