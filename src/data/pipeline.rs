//! Whole batches: from sample indices to the network's input.

use std::ops::Range;
use std::sync::Arc;

use tch::{Device, Kind, Tensor};

use super::decompression::Scratch;
use super::draws::{AsdDraws, Draws, Sampler};
use super::standardization::standardization;
use super::transforms::{Cropping, DetectorNetwork, ExtrinsicPrior, ParameterTable, Source, PROJECTION_PARAMETERS};
use super::{AsdDataset, DataError, WaveformDataset};
use crate::settings::{DataSettings, Standardization};
use crate::torch_ext::strain::{clean_strains, network_inputs, Phases, Projection, Scaling, ShapeError, Waveforms};
use crate::torch_ext::HostPool;

/// Samples whose polarizations are in memory at a time: few enough for the cache, many enough for the matrix product.
const TILE: usize = 64;
/// The network sees 1e-23 / ASD.
const ASD_SCALE: f32 = 1e-23;
/// Distance (Mpc) of the waveforms that the embedding network's basis is built on.
const CLEAN_DISTANCE: f64 = 100.0;

/// Makes training samples. May be used from many threads at once.
pub struct Pipeline {
    dataset: Arc<WaveformDataset>,
    asds: Arc<AsdDataset>,
    network: DetectorNetwork,
    sampler: Sampler,
    clean_prior: ExtrinsicPrior,
    standardization: Standardization,
    inference: ParameterTable,
    context: Option<ParameterTable>,
    /// Where batches lie.
    memory: HostPool,
}

/// What the pipeline computes on the way; for comparison with Dingo, transform by transform.
#[derive(Debug)]
pub struct Intermediates {
    /// `[samples, detectors]`, s, float64.
    pub arrival_times: Tensor,
    /// `[samples, detectors, bins]` from 0 Hz on, complex64, in physical units.
    pub projected: Tensor,
    /// The same divided by the ASD and the standard deviation of white noise.
    pub whitened: Tensor,
}

impl Pipeline {
    /// `asds` holds the detectors of the settings in their order, on the dataset's domain. The standardization is the
    /// settings', or computed where they have none.
    pub fn new(
        dataset: Arc<WaveformDataset>,
        asds: Arc<AsdDataset>,
        data: &DataSettings,
        seed: u64,
    ) -> Result<Pipeline, DataError> {
        let network = DetectorNetwork::new(&data.detectors, data.ref_time)?;
        check_asds(&asds, &network, &dataset)?;
        check_reference(&dataset)?;
        let prior = ExtrinsicPrior::new(&data.extrinsic_prior)?;
        let standardization = match &data.standardization {
            Some(given) => given.clone(),
            None => standardization(
                &dataset,
                &prior,
                &network,
                &data.inference_parameters,
                &data.context_parameters,
            )?,
        };
        let table = |names: &[String], key| {
            let source = |name: &String| Source::of(name, key, &dataset, &prior, &network);
            let sources = names.iter().map(source).collect::<Result<_, _>>()?;
            ParameterTable::new(names, sources, &standardization)
        };
        let inference = table(&data.inference_parameters, "data.inference_parameters")?;
        let context = table(&data.context_parameters, "data.context_parameters")?;
        let cropping = data.random_strain_cropping.as_ref();
        let cropping = cropping
            .map(|settings| Cropping::new(settings, dataset.domain()))
            .transpose()?;
        let num_asds = (0..network.len()).map(|detector| asds.num_asds(detector)).collect();
        Ok(Pipeline {
            clean_prior: prior.with_fixed("luminosity_distance", CLEAN_DISTANCE)?,
            sampler: Sampler {
                seed,
                prior,
                num_asds,
                noise: !data.zero_noise,
                cropping,
            },
            context: (!data.context_parameters.is_empty()).then_some(context),
            dataset,
            asds,
            network,
            standardization,
            inference,
            memory: HostPool::new()?,
        })
    }

    /// What parameters are standardized by; to be stored in the settings.
    pub fn standardization(&self) -> &Standardization {
        &self.standardization
    }

    /// The names of the detectors, in the order of the strain; a triangular one counts as three.
    pub fn detectors(&self) -> impl ExactSizeIterator<Item = &str> {
        self.network.names()
    }

    pub fn dataset(&self) -> &Arc<WaveformDataset> {
        &self.dataset
    }

    /// The network's inputs for these samples in this epoch: theta `[samples, parameters]`, and the context, first the
    /// strain `[samples, detectors, 3, bins]` from f_min to f_max (real, imaginary, 1e-23 / ASD), then context parameters
    /// `[samples, parameters]` where the settings have some. float32.
    pub fn batch(&self, indices: &[usize], epoch: u64) -> Result<(Tensor, Vec<Tensor>), DataError> {
        self.assemble(indices, &self.draws(indices, epoch))
    }

    /// The random values of these samples in this epoch.
    pub fn draws(&self, indices: &[usize], epoch: u64) -> Draws {
        self.sampler.draw(indices, epoch)
    }

    /// [`Pipeline::batch`] with given random values.
    pub fn assemble(&self, indices: &[usize], draws: &Draws) -> Result<(Tensor, Vec<Tensor>), DataError> {
        let (arrival_times, projections) = self.projections(indices, draws)?;
        let domain = self.dataset.domain();
        let scaling = Scaling {
            first_bin: domain.min_index(),
            whitening: (1.0 / domain.noise_std()) as f32,
            asd_scale: ASD_SCALE,
        };
        let bins = domain.num_bins() - scaling.first_bin;
        let shape = [indices.len(), self.network.len(), 3, bins].map(|size| size as i64);
        let mut strain = self.memory.empty(&shape)?;
        let begin = |projection: &Projection| Phases::begin(projection.turns, scaling.first_bin);
        let mut phases: Vec<Phases> = projections.iter().map(begin).collect();
        self.pieces(indices, |waveforms, first_bin, rows, of_tile| {
            let (projections, phases) = (&projections[of_tile.clone()], &mut phases[of_tile]);
            network_inputs(
                waveforms,
                first_bin,
                projections,
                phases,
                &scaling,
                &mut strain,
                rows.start,
            )
        })?;
        let table =
            |parameters: &ParameterTable| parameters.standardized(&self.dataset, indices, draws, &arrival_times);
        let theta = table(&self.inference)?;
        let mut context = vec![strain];
        if let Some(parameters) = &self.context {
            context.push(table(parameters)?);
        }
        Ok((theta, context))
    }

    /// The steps of [`Pipeline::assemble`] up to whitening.
    pub fn intermediates(&self, indices: &[usize], draws: &Draws) -> Result<Intermediates, DataError> {
        let (arrival_times, projections) = self.projections(indices, draws)?;
        let h = self.dataset.polarizations(indices)?;
        let detectors = self.network.len();
        let whitening = (1.0 / self.dataset.domain().noise_std()) as f32;
        Ok(Intermediates {
            arrival_times: Tensor::f_from_slice(&arrival_times)?.f_view([indices.len() as i64, detectors as i64])?,
            projected: clean_strains(&h.plus, &h.cross, &projections, detectors, None)?,
            whitened: clean_strains(&h.plus, &h.cross, &projections, detectors, Some(whitening))?,
        })
    }

    /// Whitened strains without noise from 100 Mpc, one `[samples, bins]` complex64 tensor per detector, bins from 0 Hz to
    /// f_max: what the basis of the embedding network is built on. A sample's waveform is always the same.
    pub fn clean_waveforms(&self, indices: &[usize]) -> Result<Vec<Tensor>, DataError> {
        let draws = self.sampler.draw_clean(&self.clean_prior, indices);
        let (_, projections) = self.projections(indices, &draws)?;
        let domain = self.dataset.domain();
        let whitening = (1.0 / domain.noise_std()) as f32;
        let shape = [indices.len() as i64, domain.num_bins() as i64];
        let allocate = |_| Tensor::f_empty(shape, (Kind::ComplexFloat, Device::Cpu));
        let waveforms: Vec<Tensor> = (0..self.network.len()).map(allocate).collect::<Result<_, _>>()?;
        for (rows, of_tile) in self.tiles(indices.len()) {
            let h = self.dataset.polarizations(&indices[rows.clone()])?;
            let strains = clean_strains(
                &h.plus,
                &h.cross,
                &projections[of_tile],
                self.network.len(),
                Some(whitening),
            )?;
            for (detector, waveforms) in waveforms.iter().enumerate() {
                let mut place = waveforms.f_narrow(0, rows.start as i64, rows.len() as i64)?;
                place.f_copy_(&strains.f_select(1, detector as i64)?)?;
            }
        }
        Ok(waveforms)
    }

    /// Parameters of the [clean waveforms](Pipeline::clean_waveforms), by name: what Dingo writes beside the mismatches of
    /// the basis.
    pub fn clean_parameters(&self, indices: &[usize]) -> Result<Vec<(String, Vec<f64>)>, DataError> {
        let mut extrinsic = self.sampler.draw_clean(&self.clean_prior, indices).extrinsic;
        let (ra, dec, time) = (&extrinsic["ra"], &extrinsic["dec"], &extrinsic["geocent_time"]);
        let arrivals = self.network.names().enumerate().map(|(detector, name)| {
            let arrival = |i: usize| self.network.arrival_time(detector, ra[i], dec[i], time[i]);
            (
                format!("{name}_time"),
                (0..indices.len()).map(arrival).collect::<Vec<_>>(),
            )
        });
        let arrivals: Vec<_> = arrivals.collect();
        let mut parameters = Vec::new();
        for name in self.dataset.parameter_names() {
            // Drawn values take the place of the dataset's fixed ones.
            let values = match extrinsic.shift_remove(name) {
                Some(drawn) => drawn,
                None => indices
                    .iter()
                    .filter_map(|&i| self.dataset.parameter(name)?.get(i).copied())
                    .collect(),
            };
            parameters.push((name.clone(), values));
        }
        parameters.extend(extrinsic);
        parameters.extend(arrivals);
        Ok(parameters)
    }

    /// Of a sample: what is read from the dataset, and what the network is given.
    pub(super) fn bytes_per_sample(&self) -> f64 {
        let domain = self.dataset.domain();
        let floats = 3 * self.network.len() * (domain.num_bins() - domain.min_index());
        (floats * std::mem::size_of::<f32>() + self.dataset.bytes_per_sample()) as f64
    }

    /// Reads and decompresses, as a batch does, and forgets; for measurements.
    pub(super) fn read_polarizations(&self, indices: &[usize]) -> Result<(), DataError> {
        self.pieces(indices, |_, _, _, _| Ok(()))
    }

    /// Gives `project` the polarizations of all samples piece by piece, the bins of a sample in order: from which bin on they
    /// are, of which rows of the batch, and the places of their projections. They are still in the cache then.
    fn pieces(
        &self,
        indices: &[usize],
        mut project: impl FnMut(&Waveforms, usize, Range<usize>, Range<usize>) -> Result<(), ShapeError>,
    ) -> Result<(), DataError> {
        let mut scratch = Scratch::default();
        let stretches = self.dataset.stretches();
        let tiles: Vec<_> = self.tiles(indices.len()).collect();
        // Weights are read once for all tiles of a group.
        let group = if self.dataset.is_compressed() {
            tiles.len().max(1)
        } else {
            1
        };
        for tiles in tiles.chunks(group) {
            let stored = tiles
                .iter()
                .map(|(rows, _)| self.dataset.stored(&indices[rows.clone()]));
            let stored: Vec<_> = stored.collect::<Result<_, _>>()?;
            for (number, bins) in stretches.iter().enumerate() {
                for ((rows, of_tile), stored) in tiles.iter().zip(&stored) {
                    let h = self.dataset.stretch(stored, number, &mut scratch)?;
                    project(&h, bins.start, rows.clone(), of_tile.clone())?;
                }
            }
        }
        Ok(())
    }

    /// Samples in tiles: their rows, and their places in what [`Pipeline::projections`] gives.
    fn tiles(&self, samples: usize) -> impl Iterator<Item = (Range<usize>, Range<usize>)> {
        let detectors = self.network.len();
        (0..samples).step_by(TILE).map(move |start| {
            let end = samples.min(start + TILE);
            (start..end, start * detectors..end * detectors)
        })
    }

    /// Arrival times and projections of the samples, detectors innermost.
    fn projections<'a>(
        &'a self,
        indices: &[usize],
        draws: &'a Draws,
    ) -> Result<(Vec<f64>, Vec<Projection<'a>>), DataError> {
        self.check_draws(indices, draws)?;
        let [dec, ra, geocent_time, psi, distance] = PROJECTION_PARAMETERS.map(|name| &draws.extrinsic[name][..]);
        let reference = self.dataset.parameter("luminosity_distance").unwrap_or_default();
        let delta_f = self.dataset.domain().delta_f;
        let mut arrival_times = Vec::with_capacity(indices.len() * self.network.len());
        let mut projections = Vec::with_capacity(arrival_times.capacity());
        for (sample, &index) in indices.iter().enumerate() {
            let ratio = reference[index] / distance[sample];
            for detector in 0..self.network.len() {
                let (plus, cross) = self
                    .network
                    .antenna_pattern(detector, ra[sample], dec[sample], psi[sample]);
                let time = self
                    .network
                    .arrival_time(detector, ra[sample], dec[sample], geocent_time[sample]);
                arrival_times.push(time);
                projections.push(Projection {
                    plus: (plus * ratio) as f32,
                    cross: (cross * ratio) as f32,
                    turns: time * delta_f,
                    asd: match &draws.asds {
                        AsdDraws::Indices(drawn) => self.asds.asd(detector, drawn[sample][detector]),
                        AsdDraws::Spectra(spectra) => &spectra[sample][detector],
                    },
                    noise: draws.noise.as_ref().map(|streams| streams[sample][detector]),
                    keep: draws
                        .cropping
                        .as_ref()
                        .map_or(0..usize::MAX, |kept| kept[sample][detector].clone()),
                });
            }
        }
        Ok((arrival_times, projections))
    }

    /// Draws may come from elsewhere: they must have a value for every sample and detector.
    fn check_draws(&self, indices: &[usize], draws: &Draws) -> Result<(), DataError> {
        let (samples, detectors, count) = (indices.len(), self.network.len(), self.dataset.len());
        if let Some(index) = indices.iter().find(|&&index| index >= count) {
            return Err(DataError::Compute(format!("sample {index} of a dataset of {count}")));
        }
        let mut lengths = PROJECTION_PARAMETERS
            .iter()
            .map(|&name| draws.extrinsic.get(name).map_or(0, Vec::len));
        fn full<T>(rows: &[Vec<T>], samples: usize, detectors: usize) -> bool {
            rows.len() == samples && rows.iter().all(|row| row.len() == detectors)
        }
        let asds = match &draws.asds {
            AsdDraws::Indices(drawn) => {
                let known = |row: &Vec<usize>| row.iter().enumerate().all(|(d, &i)| i < self.asds.num_asds(d));
                full(drawn, samples, detectors) && drawn.iter().all(known)
            }
            AsdDraws::Spectra(spectra) => full(spectra, samples, detectors),
        };
        let noise = draws
            .noise
            .as_ref()
            .is_none_or(|streams| full(streams, samples, detectors));
        let cropping = draws
            .cropping
            .as_ref()
            .is_none_or(|kept| full(kept, samples, detectors));
        if lengths.all(|length| length == samples) && asds && noise && cropping {
            return Ok(());
        }
        Err(DataError::Compute(format!(
            "the draws do not fit {samples} samples in {detectors} detectors"
        )))
    }
}

fn check_asds(asds: &AsdDataset, network: &DetectorNetwork, dataset: &WaveformDataset) -> Result<(), DataError> {
    if !asds.detectors().eq(network.names()) {
        let (have, want): (Vec<_>, Vec<_>) = (asds.detectors().collect(), network.names().collect());
        let message = format!("the ASDs are of {}, not of {}", have.join(", "), want.join(", "));
        return Err(DataError::Setting {
            key: "data.detectors".into(),
            message,
        });
    }
    let (bins, expected) = (asds.asd(0, 0).len(), dataset.domain().num_bins());
    if bins != expected {
        return Err(DataError::Compute(format!(
            "ASDs of {bins} bins for waveforms of {expected}"
        )));
    }
    Ok(())
}

/// The dataset must say at which distance its waveforms are, and have them at time zero.
fn check_reference(dataset: &WaveformDataset) -> Result<(), DataError> {
    let error = |message: &str| DataError::Setting {
        key: "data.waveform_dataset_path".into(),
        message: message.into(),
    };
    let column = |name: &str| {
        let missing = || {
            error(&format!(
                "the dataset has no parameter {name}, which the projection needs"
            ))
        };
        dataset.parameter(name).ok_or_else(missing)
    };
    if column("luminosity_distance")?
        .iter()
        .any(|&distance| !(distance.is_finite() && distance > 0.0))
    {
        return Err(error("the dataset has a luminosity_distance that is not positive"));
    }
    // The tolerance is numpy.allclose's.
    if column("geocent_time")?
        .iter()
        .any(|time| time.is_nan() || time.abs() > 1e-8)
    {
        return Err(error("the dataset's waveforms must have geocent_time 0"));
    }
    Ok(())
}
