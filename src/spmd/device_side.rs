//! What the ranks compute on: chosen once, by all of them together.

use super::arrivals::Arrivals;
use super::devices::{assign, Identity, Visible};
use super::error::{Result, SpmdError};
use super::nccl::DeviceLink;
use super::nccl_watch::NcclWatch;
use super::topology::{self, Gpu, Place};
use super::watchdog::Watched;
use super::world::{World, GRADIENTS, NORMALIZATION};
use crate::settings;
use crate::torch_ext::cuda::{self, DeviceProperties};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tch::Device;

/// A rank's GPU, and its ways to the others'.
pub(super) struct DeviceSide {
    number: usize,
    properties: DeviceProperties,
    /// In the order of [`PURPOSES`].
    arrivals: [Arc<Arrivals>; 2],
    links: OnceLock<Links>,
}

/// Batch normalization is computed, gradients go beside the computation: a communicator for each, so that neither waits for
/// the other.
const PURPOSES: [&str; 2] = [NORMALIZATION, GRADIENTS];

struct Links {
    normalization: Arc<DeviceLink>,
    gradients: Arc<DeviceLink>,
    watch: NcclWatch,
}

impl DeviceSide {
    pub fn collectives(&self) -> Option<Arc<DeviceLink>> {
        self.links.get().map(|links| links.normalization.clone())
    }

    /// What the watchdog looks after, from before there are links.
    pub fn watched(&self) -> impl Iterator<Item = Watched> + '_ {
        let watched = |(purpose, arrivals): (&'static str, &Arc<Arrivals>)| Watched {
            purpose,
            arrivals: arrivals.clone(),
        };
        PURPOSES.into_iter().zip(&self.arrivals).map(watched)
    }

    /// Takes the links down, with all other ranks, where nobody holds them any more.
    pub fn disconnect(mut self) -> Result<()> {
        let Some(links) = self.links.take() else { return Ok(()) };
        drop(links.watch);
        for link in [links.normalization, links.gradients] {
            if let Ok(link) = Arc::try_unwrap(link) {
                link.disconnect()?;
            }
        }
        Ok(())
    }
}

impl World {
    /// Chooses what all ranks compute on: CPUs, or a GPU each, which becomes the current one of this thread. All ranks call
    /// this together, once.
    ///
    /// # Errors
    /// `local.device` (a [`SettingsError`](settings::SettingsError), the same on all ranks) when the program was built without
    /// CUDA, or there is not a GPU for each rank.
    pub fn use_device(&self, wanted: settings::Device) -> anyhow::Result<()> {
        if wanted == settings::Device::Cpu {
            return Ok(());
        }
        let seen = visible_gpus();
        let identities: Vec<u8> = seen.iter().flatten().flat_map(|gpu| gpu.uuid).collect();
        let identities = self.gather_slices(&identities)?;
        let none_since = seen.as_ref().err().map_or_else(String::new, none_since);
        let none_since = self.gather_strings(&none_since)?;
        let nodes = self.gather(self.node as u64)?;
        let identity = |bytes: &[u8]| -> Identity { std::array::from_fn(|place| bytes[place]) };
        let ranks = (0..self.size).map(|rank| Visible {
            host: self.hosts[rank].clone(),
            node: nodes[rank] as usize,
            gpus: identities[rank].chunks_exact(16).map(identity).collect(),
            none_since: none_since[rank].clone(),
        });
        // Of the same table on all ranks, so the same result.
        let number = assign(&ranks.collect::<Vec<_>>())?[self.rank];
        self.agree(cuda::set_device(number).map_err(Into::into))?;
        let properties = seen?.swap_remove(number);
        let chosen = self.device_side.set(DeviceSide {
            number,
            properties,
            arrivals: Default::default(),
            links: OnceLock::new(),
        });
        chosen.map_err(|_| SpmdError::Usage("the device was chosen already".into()).into())
    }

    /// What this rank computes on.
    pub fn device(&self) -> Device {
        let number = self.device_side.get().map(|side| side.number);
        number.map_or(Device::Cpu, Device::Cuda)
    }

    /// Connects the ranks' GPUs, if they compute on such. From here on what goes wrong between them ends the job, and so does
    /// what is not complete within `limit`, where there is no watchdog (see [`World::watch_collectives`]) to tell more. All
    /// ranks call this together.
    ///
    /// # Errors
    /// What MPI or NCCL says.
    pub fn connect_devices(&self, limit: Duration) -> anyhow::Result<()> {
        let Some(side) = self.device_side.get().filter(|_| self.size > 1) else {
            return Ok(());
        };
        let connect = |place: usize| {
            let link = DeviceLink::connect(self, side.number, PURPOSES[place], side.arrivals[place].clone());
            link.map(Arc::new)
        };
        let (normalization, gradients) = (connect(0)?, connect(1)?);
        let own_limit = (!self.threads_may_communicate).then_some(limit);
        let watch = NcclWatch::start(&[normalization.clone(), gradients.clone()], self.who(), own_limit)?;
        let connected = side.links.set(Links {
            normalization,
            gradients,
            watch,
        });
        connected.map_err(|_| SpmdError::Usage("the GPUs are connected already".into()).into())
    }

    /// The way of the gradients between GPUs.
    pub(super) fn device_gradients(&self) -> Option<Arc<DeviceLink>> {
        Some(self.device_side.get()?.links.get()?.gradients.clone())
    }

    /// Who runs where, and on what, in lines for the log. All ranks call this together.
    ///
    /// # Errors
    /// What MPI says.
    pub fn topology(&self) -> Result<Vec<String>> {
        let own = self.device_side.get().map(|side| &side.properties);
        let nodes = self.gather(self.node as u64)?;
        let names = self.gather_strings(own.map_or("", |gpu| gpu.name.as_str()))?;
        let slots = self.gather_strings(own.map_or("", |gpu| gpu.pci.as_str()))?;
        let memories = self.gather(own.map_or(0, |gpu| gpu.memory))?;
        let place = |rank: usize| Place {
            host: self.hosts[rank].clone(),
            node: nodes[rank] as usize,
            gpu: (!names[rank].is_empty()).then(|| Gpu {
                name: names[rank].clone(),
                pci: slots[rank].clone(),
                memory: memories[rank],
            }),
        };
        let mut lines = topology::lines(&(0..self.size).map(place).collect::<Vec<_>>());
        lines.push(self.libraries());
        Ok(lines)
    }

    /// What the ranks' GPUs hold, in a line for the log; nothing where they compute on CPUs. All ranks call this together.
    ///
    /// # Errors
    /// What MPI or CUDA says.
    pub fn memory_report(&self) -> anyhow::Result<Option<String>> {
        let Some(side) = self.device_side.get() else {
            return Ok(None);
        };
        let memory = cuda::take_memory(side.number)?;
        let mut most = [memory.allocated, memory.reserved, memory.peak];
        self.max(&mut most)?;
        let [allocated, reserved, peak] = most.map(|bytes| bytes as f64 / f64::from(1 << 30));
        let on = if self.size > 1 { " on the fullest" } else { "" };
        Ok(Some(format!(
            "GPU memory{on}: {allocated:.2} GB allocated, {reserved:.2} GB reserved, at most {peak:.2} GB allocated."
        )))
    }

    /// Dingo's `info_gpus.txt`; nothing where this rank computes on a CPU.
    pub fn gpu_report(&self) -> Option<String> {
        let side = self.device_side.get()?;
        let versions = cuda::versions().ok()?;
        let lines = [
            format!("# Running on host:\n{}\n# CUDA information:", self.hosts[self.rank]),
            format!("cuDNN version: {}", versions.cudnn),
            format!("CUDA version: {}", cuda_version(versions.runtime)),
            format!("device count: {}", cuda::device_count().ok()?),
            format!("device name: {}", side.properties.name),
            format!("memory (GB): {:.1}", side.properties.memory as f64 / f64::from(1 << 30)),
        ];
        Some(lines.join("\n") + "\n")
    }

    fn libraries(&self) -> String {
        let mut libraries = Vec::new();
        if self.device_side.get().is_some() {
            libraries.extend(cuda::versions().map(|versions| {
                let (runtime, driver) = (cuda_version(versions.runtime), cuda_version(versions.driver));
                format!("CUDA {runtime} (the driver knows {driver})")
            }));
            libraries.extend(cuda::nccl_version().map(|[major, minor, patch]| format!("NCCL {major}.{minor}.{patch}")));
        }
        // Without MPI there is nothing to ask.
        if mpi::environment::is_initialized() {
            let mpi = mpi::environment::library_version();
            libraries.extend(mpi.map(|version| topology::mpi_version(&version).to_owned()));
        }
        libraries.join(", ")
    }
}

/// 13000 is 13.0.
fn cuda_version(number: i32) -> String {
    format!("{}.{}", number / 1000, number % 1000 / 10)
}

fn visible_gpus() -> std::result::Result<Vec<DeviceProperties>, crate::torch_ext::TorchExtError> {
    (0..cuda::device_count()?).map(cuda::device_properties).collect()
}

/// CUDA's reason, and what may be behind it.
fn none_since(error: &crate::torch_ext::TorchExtError) -> String {
    match std::env::var("CUDA_VISIBLE_DEVICES") {
        Ok(visible) => format!("{} (CUDA_VISIBLE_DEVICES is {visible:?})", error.0),
        Err(_) => error.0.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuda_counts_in_thousands() {
        assert_eq!([13000, 12080].map(cuda_version), ["13.0", "12.8"]);
    }

    #[test]
    fn a_rank_by_itself_computes_on_the_cpu() {
        let world = World::alone(|_| 1);
        world.use_device(settings::Device::Cpu).unwrap();
        world.connect_devices(Duration::ZERO).unwrap();
        assert_eq!(world.device(), Device::Cpu);
        assert!(world.topology().unwrap()[0].ends_with(": rank 0 on CPUs"));
    }
}
