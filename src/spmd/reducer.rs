//! Sums gradients over ranks while the backward pass goes on.

use super::bucket::{common_options, lay_out, write_numbers, Head};
use super::collectives::host_memory;
use super::communicator::Communicator;
use super::cuda_streams::CudaStreams;
use super::error::{Result, SpmdError};
use super::progress::{LocalNorm, Progress};
use super::stream_transport::StreamTransport;
use super::transport::{HandOver, Memory, SerialTransport, ThreadTransport, Transport};
use super::world::World;
use crate::torch_ext::{clear, clear_grad, set_grad, set_post_accumulate_grad_hook, HookHandle};
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::Duration;
use tch::Tensor;

pub use super::bucket::{RANK_SLOTS, SCALAR_SLOTS};

/// How gradients are put into buckets and carried.
#[derive(Debug, Clone, Copy)]
pub struct ReducerOptions {
    /// Size of a bucket.
    pub bucket_bytes: usize,
    /// Size of the first one, small so that communication starts early.
    pub first_bucket_bytes: usize,
    /// Reduce while the backward pass goes on; else after it.
    pub overlap: bool,
    /// Take the norm of this rank's own gradient before it is reduced.
    pub local_norm: bool,
    /// Time added to the way of each bucket, to try out a slow network.
    pub artificial_delay: Duration,
}

impl Default for ReducerOptions {
    fn default() -> Self {
        ReducerOptions {
            bucket_bytes: 25 << 20,
            first_bucket_bytes: 1 << 20,
            overlap: true,
            local_norm: false,
            artificial_delay: Duration::ZERO,
        }
    }
}

/// What one step's reduction brought.
pub struct Reduced {
    /// `[SCALAR_SLOTS]`, the sums over ranks of what `set_scalars` was given, in the kind and on the device of the
    /// gradients. A view into a bucket: to be used before the next `zero`.
    pub scalars: Tensor,
    /// `[ranks, RANK_SLOTS]`, what each rank gave to `set_rank_values`; a view likewise.
    pub of_ranks: Tensor,
    /// The squared norm of this rank's own gradient, with `ReducerOptions::local_norm` and several ranks.
    pub local_square_norm: Option<f64>,
    /// Collectives of this step.
    pub collectives: usize,
    /// Bytes that this rank handed to them.
    pub bytes: usize,
    /// Time in which any reduction was under way. On GPUs that of the step before, where it is known already, else zero.
    pub communicating: Duration,
    /// Time that the computation waited, which is what the step did not hide behind the backward pass; as `communicating`.
    pub waited: Duration,
}

/// The share of the communication that was hidden behind the backward pass, from 0 to 1, of the seconds in which any was
/// under way and those in which steps waited for it; nothing without communication.
pub fn hidden_share(communicating: f64, waited: f64) -> Option<f64> {
    (communicating > 0.0).then(|| (1.0 - waited / communicating).clamp(0.0, 1.0))
}

/// Owns the gradients of the trainable parameters and sums them over ranks.
///
/// Each `.grad` is a view into a flat bucket. In a step:
/// ```text
/// reducer.zero()?;
/// for every micro-batch {
///     let loss = ...;                      // scaled by the global count: the reduction is a plain sum
///     reducer.prepare(is_last)?;
///     reducer.set_scalars(&[...])?;        // before the last backward pass, if wanted
///     loss.backward();
/// }
/// let reduced = reducer.finish()?;         // .grad holds the sums over ranks
/// ```
/// A parameter that got no gradient counts as zero. When the trainable set changes, drop the reducer (gradients become
/// undefined) and make a new one. All ranks do all this alike; only the bucket that is full first may differ.
pub struct GradientReducer {
    // Fields drop in this order: no hook may call a thread that is gone.
    hooks: Vec<HookHandle>,
    transport: Option<Box<dyn Transport>>,
    parameters: Vec<Tensor>,
    gradients: Vec<Tensor>,
    buckets: Vec<Tensor>,
    /// The buckets without the head.
    flat_gradients: Vec<Tensor>,
    progress: Arc<Progress>,
    hand_over: HandOver,
    local_norm: Option<Arc<LocalNorm>>,
    /// Views into the first bucket: what is summed, what each rank tells, and this rank's part of that.
    scalars: Tensor,
    of_ranks: Tensor,
    own_values: Tensor,
    bytes: usize,
}

impl GradientReducer {
    /// For these trainable parameters, in registration order: leaves of one kind (Float or Double) on one device. Their
    /// gradients become zero. `bucket_bytes` is the size of all buckets but the first. The same on all ranks.
    ///
    /// # Errors
    /// No parameter, one that is frozen or unlike the others, or one that another reducer still holds.
    pub fn new(world: &World, parameters: &[Tensor], bucket_bytes: usize) -> Result<GradientReducer> {
        Self::with_options(
            world,
            parameters,
            &ReducerOptions {
                bucket_bytes,
                ..ReducerOptions::default()
            },
        )
    }

    /// As `new`, with all options.
    pub fn with_options(world: &World, parameters: &[Tensor], options: &ReducerOptions) -> Result<GradientReducer> {
        let kind_and_device = common_options(parameters)?;
        let sizes: Vec<i64> = parameters.iter().map(|parameter| parameter.numel() as i64).collect();
        let head = Head { ranks: world.size };
        let elements = |bytes: usize| (bytes / kind_and_device.0.elt_size_in_bytes()) as i64;
        let layout = lay_out(
            head,
            &sizes,
            elements(options.first_bucket_bytes),
            elements(options.bucket_bytes),
        );
        let bucket = |&elements: &i64| Tensor::f_zeros([elements], kind_and_device);
        let buckets = layout
            .elements
            .iter()
            .map(bucket)
            .collect::<std::result::Result<Vec<_>, _>>()?;

        let mut gradients = Vec::with_capacity(parameters.len());
        for (parameter, place) in parameters.iter().zip(&layout.places) {
            let flat = buckets[place.bucket].f_narrow(0, place.range.start, place.range.end - place.range.start)?;
            gradients.push(flat.f_view(parameter.size().as_slice())?);
        }
        let flat_gradients = buckets.iter().enumerate().map(|(index, bucket)| match index {
            0 => bucket.f_narrow(0, head.space(), layout.elements[0] - head.space()),
            _ => Ok(bucket.shallow_clone()),
        });
        let of_ranks = head.of_ranks(&buckets[0]);
        let mut reducer = GradientReducer {
            hooks: Vec::new(),
            transport: None,
            parameters: parameters.iter().map(Tensor::shallow_clone).collect(),
            gradients,
            flat_gradients: flat_gradients.collect::<std::result::Result<_, _>>()?,
            scalars: head.scalars(&buckets[0]),
            buckets,
            progress: Arc::new(Progress::new(&layout)),
            hand_over: Arc::new(|_| {}),
            local_norm: None,
            own_values: of_ranks.f_select(0, world.rank as i64)?,
            of_ranks,
            bytes: 0,
        };
        reducer.connect(world, options)?;
        for (index, place) in layout.places.iter().enumerate() {
            set_grad(&reducer.parameters[index], &reducer.gradients[index])?;
            if reducer.transport.is_some() {
                reducer.hook(index, place.bucket)?;
            }
        }
        Ok(reducer)
    }

    /// Sets up the way to the other ranks, if there are any.
    fn connect(&mut self, world: &World, options: &ReducerOptions) -> Result<()> {
        let bytes = |bucket: &Tensor| bucket.numel() * bucket.kind().elt_size_in_bytes();
        let transport: Box<dyn Transport> = match (world.gradients(), world.device_gradients()) {
            (None, _) => return Ok(()),
            (Some(communicator), None) => self.host_transport(world, communicator, options)?,
            (Some(_), Some(link)) => {
                let streams = CudaStreams::new(link, &self.buckets)?;
                Box::new(StreamTransport::new(
                    Box::new(streams),
                    self.buckets.len(),
                    options.overlap,
                ))
            }
        };
        self.bytes = self.buckets.iter().map(bytes).sum();
        self.hand_over = transport.hand_over();
        if options.local_norm {
            let norm = Arc::new(LocalNorm::new(&self.flat_gradients));
            let (hand_over, adds_up) = (self.hand_over.clone(), norm.clone());
            self.hand_over = Arc::new(move |bucket| {
                adds_up.add(bucket);
                hand_over(bucket);
            });
            self.local_norm = Some(norm);
        }
        self.transport = Some(transport);
        Ok(())
    }

    fn host_transport(
        &self,
        world: &World,
        communicator: Arc<Communicator>,
        options: &ReducerOptions,
    ) -> Result<Box<dyn Transport>> {
        let memory = |bucket| host_memory(bucket).map(|(data, count, element)| Memory { data, count, element });
        let buckets = self.buckets.iter().map(memory).collect::<Result<Vec<_>>>()?;
        let delay = options.artificial_delay;
        Ok(match options.overlap && world.threads_may_communicate {
            true => Box::new(ThreadTransport::start(communicator, buckets, delay)?),
            false => Box::new(SerialTransport {
                communicator,
                buckets,
                delay,
            }),
        })
    }

    fn hook(&mut self, parameter: usize, bucket: usize) -> Result<()> {
        let (progress, hand_over) = (self.progress.clone(), self.hand_over.clone());
        let hook = Box::new(move || progress.gradient_is_complete(bucket, &hand_over));
        self.hooks
            .push(set_post_accumulate_grad_hook(&self.parameters[parameter], hook)?);
        Ok(())
    }

    /// Makes all gradients and scalars zero, at the beginning of a step.
    ///
    /// # Errors
    /// What libtorch says of buckets on a device.
    pub fn zero(&mut self) -> Result<()> {
        Ok(clear(&mut self.buckets)?)
    }

    /// Before each backward pass: whether its gradients, with those accumulated since `zero`, are to be reduced.
    /// Without, there is no communication.
    ///
    /// # Errors
    /// If the last step was not finished, or somebody replaced a `.grad`.
    pub fn prepare(&mut self, reduce: bool) -> Result<()> {
        if self.progress.reducing.load(Ordering::Acquire) {
            return Err(SpmdError::Usage(
                "the reduction of the last backward pass was not finished".into(),
            ));
        }
        for (index, (parameter, gradient)) in self.parameters.iter().zip(&self.gradients).enumerate() {
            let current = parameter.grad();
            if !current.defined() || current.data_ptr() != gradient.data_ptr() {
                return Err(SpmdError::Usage(format!(
                    "the gradient of parameter {index} was replaced; zero it through the reducer"
                )));
            }
        }
        if reduce {
            for (missing, &parameters) in self.progress.missing.iter().zip(&self.progress.parameters) {
                missing.store(parameters, Ordering::Release);
            }
            self.progress.reducing.store(true, Ordering::Release);
        }
        Ok(())
    }

    /// Sets up to `SCALAR_SLOTS` numbers to be summed over ranks with the gradients (loss, counts, flags); call it
    /// before the backward pass that is reduced. For numbers on a device, copy into `scalars` instead.
    pub fn set_scalars(&mut self, values: &[f64]) -> Result<()> {
        if values.len() > SCALAR_SLOTS {
            return Err(SpmdError::Usage(format!(
                "{} scalars, there is room for {SCALAR_SLOTS}",
                values.len()
            )));
        }
        write_numbers(&mut self.scalars, values)
    }

    /// Sets the numbers that this rank tells all others with the gradients; call it as `set_scalars`.
    pub fn set_rank_values(&mut self, values: &[f64; RANK_SLOTS]) -> Result<()> {
        write_numbers(&mut self.own_values, values)
    }

    /// The place of the scalars: `[SCALAR_SLOTS]`, in the kind and on the device of the gradients.
    pub fn scalars(&self) -> Tensor {
        self.scalars.shallow_clone()
    }

    /// All gradients as a few flat tensors, for norms and checks: with gaps of zeros, without what rides along.
    pub fn flat_gradients(&self) -> &[Tensor] {
        &self.flat_gradients
    }

    /// The number of buckets, which is that of collectives per step.
    pub fn buckets(&self) -> usize {
        self.buckets.len()
    }

    /// After the backward pass of `prepare(true)`: whatever uses a `.grad` from here on finds the sum over ranks. On a GPU
    /// only the computation waits for that, not the host.
    ///
    /// # Errors
    /// Without such a `prepare`, if there was more than one backward pass since, or what MPI says.
    pub fn finish(&mut self) -> Result<Reduced> {
        if !self.progress.reducing.load(Ordering::Acquire) {
            return Err(SpmdError::Usage(
                "there is no reduction to finish: prepare(true) comes before the backward pass".into(),
            ));
        }
        let mut reduced = Reduced {
            scalars: self.scalars(),
            of_ranks: self.of_ranks.shallow_clone(),
            local_square_norm: None,
            collectives: 0,
            bytes: self.bytes,
            communicating: Duration::ZERO,
            waited: Duration::ZERO,
        };
        if let Some(transport) = &mut self.transport {
            for (bucket, missing) in self.progress.missing.iter().enumerate() {
                if missing.load(Ordering::Acquire) > 0 {
                    (self.hand_over)(bucket);
                }
            }
            let times = transport.finish()?;
            (reduced.communicating, reduced.waited) = (times.communicating, times.waited);
            reduced.collectives = self.buckets.len();
            reduced.local_square_norm = self.local_norm.as_ref().map(|norm| norm.take());
        }
        self.progress.reducing.store(false, Ordering::Release);
        if self.progress.late.swap(false, Ordering::AcqRel) {
            return Err(SpmdError::Usage(
                "more than one backward pass after prepare(true)".into(),
            ));
        }
        Ok(reduced)
    }
}

impl Drop for GradientReducer {
    fn drop(&mut self) {
        self.hooks.clear();
        if self.transport.is_some() && self.progress.reducing.load(Ordering::Acquire) {
            // Left amidst a step, on the way out of an error: MPI may still write into the buckets, so their memory
            // stays.
            self.buckets
                .iter()
                .for_each(|bucket| std::mem::forget(bucket.shallow_clone()));
        }
        for parameter in &self.parameters {
            // There is no one to tell, and a parameter without grad is what a failure would leave too.
            let _ = clear_grad(parameter);
        }
    }
}

#[cfg(test)]
#[path = "reducer_tests.rs"]
mod tests;
