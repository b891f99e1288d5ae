//! The world of ranks: who I am, who else is there, and the small talk between us.

use super::collectives::{HostCollectives, TensorCollectives};
use super::communicator::{Combine, Communicator, Traffic};
use super::device_side::DeviceSide;
use super::error::{Result, SpmdError};
use super::failure;
use super::nccl::NcclCollectives;
use super::number::{Element, Number};
use super::watchdog::{Watchdog, Watched};
use mpi::environment::{Threading, Universe};
use std::ffi::c_void;
use std::mem::ManuallyDrop;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// What collectives are for, as messages name it.
pub(super) const NORMALIZATION: &str = "batch normalization";
pub(super) const GRADIENTS: &str = "the sum of the gradients";

/// Everything about the ranks, as one value that `main` makes and passes down.
///
/// Every method that talks to other ranks is collective: all ranks call it, in the same order, from the main thread.
pub struct World {
    /// This rank, from 0.
    pub rank: usize,
    /// The number of ranks.
    pub size: usize,
    /// This rank among those of its node, from 0: which GPU it takes.
    pub local_rank: usize,
    /// The number of ranks on this node.
    pub local_size: usize,
    /// The lowest rank on this node, which tells nodes apart.
    pub node: usize,
    /// The number of nodes (groups of ranks that share memory).
    pub nodes: usize,
    /// The host name of each rank.
    pub hosts: Vec<String>,
    /// Whether MPI lets several threads call it at once. If not, gradients are reduced after the backward pass.
    pub threads_may_communicate: bool,
    pub(super) exit_status: fn(&anyhow::Error) -> i32,
    links: Option<Links>,
    traffic: Arc<Traffic>,
    watchdog: OnceLock<Watchdog>,
    pub(super) device_side: OnceLock<DeviceSide>,
    /// Ends MPI when dropped, which waits for the other ranks; so only `end` does it. A process that exits without is
    /// one that failed, and mpirun ends the job.
    universe: Option<ManuallyDrop<Universe>>,
}

/// One communicator per purpose, since threads use them at the same time. None of them exists in a world of one.
struct Links {
    talk: Arc<Communicator>,
    tensors: Arc<Communicator>,
    gradients: Arc<Communicator>,
    watchdogs: Arc<Communicator>,
}

impl World {
    /// Starts MPI; without mpirun the world is one rank. `exit_status` tells with which status the program ends for an
    /// error (see [`World::end`]). From here on a panic on any thread ends the job.
    ///
    /// # Errors
    /// If MPI was started before in this process, or one of its calls fails.
    pub fn initialize(exit_status: fn(&anyhow::Error) -> i32) -> Result<World> {
        let (universe, threading) = mpi::initialize_with_threading(Threading::Multiple)
            .ok_or_else(|| SpmdError::Usage("MPI is already running in this process".into()))?;
        let traffic = Arc::new(Traffic::default());
        let talk = Communicator::duplicate_world(&traffic)?;
        let node = Communicator::node(&traffic)?;
        let mut lowest = talk.rank as u64;
        // SAFETY: one number.
        unsafe { node.broadcast((&mut lowest as *mut u64).cast(), 1, Element::U64, 0)? };
        let mut world = World {
            rank: talk.rank,
            size: talk.size,
            local_rank: node.rank,
            local_size: node.size,
            node: lowest as usize,
            threads_may_communicate: threading == Threading::Multiple,
            exit_status,
            universe: Some(ManuallyDrop::new(universe)),
            traffic: traffic.clone(),
            ..World::alone(exit_status)
        };
        if world.size > 1 {
            world.links = Some(Links {
                talk: Arc::new(talk),
                tensors: Arc::new(Communicator::duplicate_world(&traffic)?),
                gradients: Arc::new(Communicator::duplicate_world(&traffic)?),
                watchdogs: Arc::new(Communicator::duplicate_world(&traffic)?),
            });
        }
        failure::abort_job_on_panic(world.who());
        world.nodes = world.sum_of(i64::from(world.local_rank == 0))? as usize;
        world.hosts = world.gather_strings(&host_name())?;
        Ok(world)
    }

    /// A world of one rank that never touches MPI: for tests and tools.
    pub fn alone(exit_status: fn(&anyhow::Error) -> i32) -> World {
        World {
            rank: 0,
            size: 1,
            local_rank: 0,
            local_size: 1,
            node: 0,
            nodes: 1,
            hosts: vec![host_name()],
            threads_may_communicate: true,
            exit_status,
            links: None,
            traffic: Arc::new(Traffic::default()),
            watchdog: OnceLock::new(),
            device_side: OnceLock::new(),
            universe: None,
        }
    }

    /// Whether this is the rank that speaks and writes.
    pub fn is_root(&self) -> bool {
        self.rank == 0
    }

    /// The collectives and bytes of this rank so far, of every kind.
    pub fn traffic(&self) -> &Arc<Traffic> {
        &self.traffic
    }

    /// Collectives on tensors in host memory, for the main thread.
    pub fn collectives(&self) -> HostCollectives {
        HostCollectives::new(self.links.as_ref().map(|links| links.tensors.clone()))
    }

    /// Collectives on tensors where the network is (see [`World::use_device`]), for the thread that computes; batch
    /// normalization uses them.
    pub fn network_collectives(&self) -> TensorCollectives {
        let of_device = self.device_side.get().and_then(DeviceSide::collectives);
        match of_device {
            Some(link) => TensorCollectives::Device(NcclCollectives::new(link, self.collectives())),
            None => TensorCollectives::Host(self.collectives()),
        }
    }

    /// The communicator of the gradient reducer's own thread.
    pub(super) fn gradients(&self) -> Option<Arc<Communicator>> {
        self.links.as_ref().map(|links| links.gradients.clone())
    }

    fn talk(&self) -> Option<&Communicator> {
        self.links.as_ref().map(|links| links.talk.as_ref())
    }

    /// Waits until all ranks have come here.
    pub fn barrier(&self) -> Result<()> {
        self.talk().map_or(Ok(()), Communicator::barrier)
    }

    /// Replaces each value by its sum over ranks. All ranks get the same bits.
    pub fn sum<T: Number>(&self, values: &mut [T]) -> Result<()> {
        self.combine(values, Combine::Sum)
    }

    /// Replaces each value by its maximum over ranks.
    pub fn max<T: Number>(&self, values: &mut [T]) -> Result<()> {
        self.combine(values, Combine::Max)
    }

    /// Replaces each value by its minimum over ranks.
    pub fn min<T: Number>(&self, values: &mut [T]) -> Result<()> {
        self.combine(values, Combine::Min)
    }

    /// The sum of one value over ranks.
    pub fn sum_of<T: Number>(&self, value: T) -> Result<T> {
        let mut values = [value];
        self.sum(&mut values).map(|()| values[0])
    }

    /// The maximum of one value over ranks.
    pub fn max_of<T: Number>(&self, value: T) -> Result<T> {
        let mut values = [value];
        self.max(&mut values).map(|()| values[0])
    }

    /// The minimum of one value over ranks.
    pub fn min_of<T: Number>(&self, value: T) -> Result<T> {
        let mut values = [value];
        self.min(&mut values).map(|()| values[0])
    }

    /// Whether any rank says so.
    pub fn any(&self, flag: bool) -> Result<bool> {
        self.max_of(u8::from(flag)).map(|flag| flag > 0)
    }

    fn combine<T: Number>(&self, values: &mut [T], combine: Combine) -> Result<()> {
        let Some(talk) = self.talk() else { return Ok(()) };
        // SAFETY: a mutable slice of `len` elements of this type.
        unsafe { talk.all_reduce(values.as_mut_ptr().cast(), values.len(), T::element(), combine) }
    }

    /// Replaces the values by those of rank `root`; all ranks pass the same number.
    pub fn broadcast<T: Number>(&self, values: &mut [T], root: usize) -> Result<()> {
        let Some(talk) = self.talk() else { return Ok(()) };
        // SAFETY: a mutable slice of `len` elements of this type.
        unsafe { talk.broadcast(values.as_mut_ptr().cast(), values.len(), T::element(), root) }
    }

    /// The one value that rank 0 has, such as the seed.
    pub fn broadcast_value<T: Number>(&self, value: T) -> Result<T> {
        let mut values = [value];
        self.broadcast(&mut values, 0).map(|()| values[0])
    }

    /// The bytes that rank `root` has, of any length; what other ranks pass is ignored.
    pub fn broadcast_bytes(&self, bytes: Vec<u8>, root: usize) -> Result<Vec<u8>> {
        let mut bytes = bytes;
        let mut length = [bytes.len() as u64];
        self.broadcast(&mut length, root)?;
        bytes.resize(length[0] as usize, 0);
        self.broadcast(&mut bytes, root)?;
        Ok(bytes)
    }

    /// One value of each rank, in the order of ranks.
    pub fn gather<T: Number>(&self, value: T) -> Result<Vec<T>> {
        self.gather_equal(&[value])
    }

    /// A few values of each rank, in the order of ranks.
    pub fn gather_array<T: Number, const N: usize>(&self, values: [T; N]) -> Result<Vec<[T; N]>> {
        let gathered = self.gather_equal(&values)?;
        let of_rank = |values: &[T]| std::array::from_fn(|place| values[place]);
        Ok(gathered.chunks_exact(N).map(of_rank).collect())
    }

    /// The values of each rank, of any number, in the order of ranks.
    pub fn gather_slices<T: Number>(&self, values: &[T]) -> Result<Vec<Vec<T>>> {
        let lengths = self.gather(values.len() as u64)?;
        let longest = lengths.iter().copied().max().unwrap_or(0) as usize;
        if longest == 0 {
            // Of nothing there is no address, and some MPI libraries mind.
            return Ok(vec![Vec::new(); self.size]);
        }
        let mut padded = values.to_vec();
        padded.resize(longest, T::default());
        let gathered = self.gather_equal(&padded)?;
        let slice = |(rank, &length): (usize, &u64)| gathered[rank * longest..][..length as usize].to_vec();
        Ok(lengths.iter().enumerate().map(slice).collect())
    }

    /// The text of each rank, in the order of ranks.
    pub fn gather_strings(&self, text: &str) -> Result<Vec<String>> {
        let gathered = self.gather_slices(text.as_bytes())?;
        Ok(gathered
            .iter()
            .map(|bytes| String::from_utf8_lossy(bytes).into_owned())
            .collect())
    }

    fn gather_equal<T: Number>(&self, values: &[T]) -> Result<Vec<T>> {
        let Some(talk) = self.talk() else {
            return Ok(values.to_vec());
        };
        let mut gathered = vec![T::default(); values.len() * self.size];
        let (element, out): (Element, *mut c_void) = (T::element(), gathered.as_mut_ptr().cast());
        // SAFETY: `gathered` has room for the equal number of values of all ranks.
        unsafe { talk.all_gather(values.as_ptr().cast(), out, values.len(), element)? };
        Ok(gathered)
    }

    /// From here on a collective that does not complete within `limit` ends the job, with a message that names the ranks which
    /// have not arrived. All ranks call this, once.
    ///
    /// # Errors
    /// If the system gives no thread.
    pub fn watch_collectives(&self, limit: Duration) -> Result<()> {
        let Some(links) = &self.links else { return Ok(()) };
        if !self.threads_may_communicate {
            log::warn!(
                "this MPI allows no thread of its own to watch the collectives: local.collective_timeout has no effect"
            );
            return Ok(());
        }
        let mut watched = Vec::new();
        for (purpose, link) in [
            ("an exchange of numbers", &links.talk),
            (NORMALIZATION, &links.tensors),
            (GRADIENTS, &links.gradients),
        ] {
            let arrivals = link.arrivals.clone();
            watched.push(Watched { purpose, arrivals });
        }
        if let Some(device_side) = self.device_side.get() {
            watched.extend(device_side.watched());
        }
        let watchdog = Watchdog::start(links.watchdogs.clone(), watched, self.hosts.clone(), limit)?;
        self.watchdog
            .set(watchdog)
            .map_err(|_| SpmdError::Usage("the collectives are watched already".into()))
    }

    /// This rank as messages name it: `rank 1 on node3`.
    pub fn who(&self) -> String {
        format!(
            "rank {} on {}",
            self.rank,
            self.hosts.get(self.rank).cloned().unwrap_or_else(host_name)
        )
    }

    /// Ends the job of all ranks at once with this status. Never returns.
    pub fn abort(&self, status: i32) -> ! {
        failure::abort_job(status)
    }

    /// Lets all ranks come here and ends MPI.
    pub(super) fn finalize(mut self) -> Result<()> {
        self.barrier()?;
        // It uses MPI until it has stopped.
        drop(self.watchdog.take());
        if let Some(device_side) = self.device_side.take() {
            device_side.disconnect()?;
        }
        if let Some(universe) = self.universe.take() {
            drop(ManuallyDrop::into_inner(universe));
        }
        Ok(())
    }
}

/// The MPI this program is linked with, by its own words, such as `Open MPI v4.1.4, package: …`. May be asked before MPI is
/// started, and without.
pub fn mpi_library() -> String {
    mpi::environment::library_version().unwrap_or_default()
}

fn host_name() -> String {
    let mut name = [0u8; 256];
    // SAFETY: `name` has the size given; a name that does not fit is cut off, and the last byte stays null.
    unsafe { libc::gethostname(name.as_mut_ptr().cast(), name.len() - 1) };
    let length = name.iter().position(|&byte| byte == 0).unwrap_or(name.len());
    String::from_utf8_lossy(&name[..length]).into_owned()
}
