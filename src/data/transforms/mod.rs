//! What happens to a sample between the dataset and the network, in Dingo's order: extrinsic parameters are drawn, the
//! polarizations projected onto the detectors, whitened by a drawn noise spectrum, noise added, parameters standardized,
//! everything packed, and random ends of the band cropped.

mod cropping;
mod detectors;
mod extrinsic;
mod parameters;

pub use cropping::Cropping;
pub use detectors::DetectorNetwork;
pub use extrinsic::{ExtrinsicPrior, PROJECTION_PARAMETERS};
pub use parameters::{ParameterTable, Source};
