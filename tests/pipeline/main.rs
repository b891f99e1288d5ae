//! The data pipeline against Dingo's transforms with Dingo's draws, and the stream of samples it makes by itself.

mod cases;
mod samples;
mod stream;
mod transforms;

/// Of all pipelines and loaders.
const SEED: u64 = 0x0123_4567_89ab_cdef;
