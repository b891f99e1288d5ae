//! From HDF5 files to batches.

mod asd_dataset;
mod batch_way;
mod decompression;
mod draws;
mod embedding_svd;
mod error;
mod file_summary;
mod hdf5_file;
mod loader;
mod local_copy;
mod pipeline;
mod prefetch;
mod python_literal;
pub mod random;
mod split;
mod standardization;
pub mod throughput;
mod transforms;
mod waveform_dataset;

pub use asd_dataset::AsdDataset;
pub use draws::{AsdDraws, Draws, Sampler};
pub use embedding_svd::{Share, SingleRank, SumOverRanks, SvdBasis};
pub use error::DataError;
pub use file_summary::{ArraySummary, FileSummary};
pub use loader::{share_of, EpochBatches, Loader, LoaderOptions};
pub use local_copy::copy_to_node;
pub use pipeline::{Intermediates, Pipeline};
pub use split::{train_test_split, TrainTestSplit};
pub use standardization::standardization;
pub use transforms::{Cropping, DetectorNetwork, ExtrinsicPrior};
pub use waveform_dataset::{Polarizations, WaveformDataset};

use tch::Tensor;

/// What one step of training reads.
#[derive(Debug)]
pub struct Batch {
    /// Standardized inference parameters, `[batch, parameters]`, float32.
    pub theta: Tensor,
    /// The network's inputs; first the whitened strain `[batch, detectors, 3, bins]` (real, imaginary, 1e-23 / ASD), then
    /// context parameters `[batch, parameters]` where there are some. float32.
    pub context: Vec<Tensor>,
    /// Samples of the global batch, over all ranks.
    pub global_count: usize,
    /// Where this rank's samples begin among them.
    pub first_sample: usize,
}
