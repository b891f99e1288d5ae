//! The raw side: an MPI communicator with checked calls on host memory.

use super::arrivals::Arrivals;
use super::error::{Result, SpmdError};
use super::number::Element;
use mpi::ffi;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

/// Elements per MPI call. MPI counts in `int`, and some libraries overflow on the bytes, so larger buffers go in
/// pieces.
const MAX_COUNT: usize = 1 << 27;

/// Of all messages; each communicator carries one kind.
const TAG: c_int = 0;

extern "C" {
    fn dingo_mpi_in_place() -> *mut c_void;
}

/// How to combine the ranks' values.
#[derive(Clone, Copy)]
pub(super) enum Combine {
    Sum,
    Max,
    Min,
}

impl Combine {
    fn op(self) -> ffi::MPI_Op {
        // SAFETY: these are constants of the MPI library.
        unsafe {
            match self {
                Combine::Sum => ffi::RSMPI_SUM,
                Combine::Max => ffi::RSMPI_MAX,
                Combine::Min => ffi::RSMPI_MIN,
            }
        }
    }
}

/// Collectives and bytes since the start, of all communicators of this rank.
#[derive(Debug, Default)]
pub struct Traffic {
    collectives: AtomicU64,
    bytes: AtomicU64,
}

impl Traffic {
    /// Number of collectives that this rank took part in.
    pub fn collectives(&self) -> u64 {
        self.collectives.load(Ordering::Relaxed)
    }

    /// Bytes that this rank handed to them.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    pub(super) fn add(&self, bytes: usize) {
        self.collectives.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

/// A duplicate of the world's communicator, so that its messages meet no others. It lives until MPI ends: freeing one
/// is itself collective and would hang on the way out of an error.
pub(super) struct Communicator {
    raw: ffi::MPI_Comm,
    pub rank: usize,
    pub size: usize,
    traffic: Arc<Traffic>,
    /// The collectives this rank has come to.
    pub arrivals: Arc<Arrivals>,
}

// SAFETY: the handle is only a name; MPI was initialized for calls from several threads, or `World` says that it was
// not and all calls stay on the main thread.
unsafe impl Send for Communicator {}
unsafe impl Sync for Communicator {}

/// A collective that is under way. The memory it works on must stay until `done` has said true.
pub(super) struct Pending {
    requests: Vec<ffi::MPI_Request>,
    complete: bool,
    arrivals: Arc<Arrivals>,
}

// SAFETY: as for `Communicator`; a request is used by one thread at a time since `done` takes it mutably.
unsafe impl Send for Pending {}

/// Turns MPI's return code into a result.
fn check(call: &'static str, code: c_int) -> Result<()> {
    const SUCCESS: c_int = 0;
    if code == SUCCESS {
        return Ok(());
    }
    // Longer than MPI_MAX_ERROR_STRING of the MPI libraries in use (Open MPI 256, MPICH 512).
    let mut text = [0u8; 4096];
    let mut length: c_int = 0;
    // SAFETY: `text` has room for any MPI message.
    unsafe { ffi::MPI_Error_string(code, text.as_mut_ptr().cast(), &mut length) };
    let length = usize::try_from(length).unwrap_or(0).min(text.len());
    Err(SpmdError::Mpi {
        call,
        message: String::from_utf8_lossy(&text[..length]).into_owned(),
    })
}

/// The pieces (offset, count) of a buffer of `count` elements, each of at most `limit`; one also when it is empty, so
/// that all ranks make the same calls.
fn pieces(count: usize, limit: usize) -> impl Iterator<Item = (usize, c_int)> {
    (0..count.max(1))
        .step_by(limit)
        .map(move |offset| (offset, (count - offset).min(limit) as c_int))
}

impl Communicator {
    /// Duplicates the communicator of all ranks. Collective.
    pub fn duplicate_world(traffic: &Arc<Traffic>) -> Result<Communicator> {
        // SAFETY: MPI is initialized, the out-places are valid. The code of set_errhandler is that of a local call on a
        // valid handle; errors then come back as codes, to be told with rank and host, instead of ending the process
        // inside.
        unsafe {
            let mut raw = ffi::RSMPI_COMM_NULL;
            check("MPI_Comm_dup", ffi::MPI_Comm_dup(ffi::RSMPI_COMM_WORLD, &mut raw))?;
            check(
                "MPI_Comm_set_errhandler",
                ffi::MPI_Comm_set_errhandler(raw, ffi::RSMPI_ERRORS_RETURN),
            )?;
            Self::from_raw(raw, traffic)
        }
    }

    /// The ranks that share memory with this one, which is what makes a node, in the order of their ranks. Collective.
    pub fn node(traffic: &Arc<Traffic>) -> Result<Communicator> {
        // SAFETY: MPI is initialized, the out-place is valid.
        unsafe {
            let mut raw = ffi::RSMPI_COMM_NULL;
            let world = ffi::RSMPI_COMM_WORLD;
            let code = ffi::MPI_Comm_split_type(world, ffi::RSMPI_COMM_TYPE_SHARED, 0, ffi::RSMPI_INFO_NULL, &mut raw);
            check("MPI_Comm_split_type", code)?;
            Self::from_raw(raw, traffic)
        }
    }

    unsafe fn from_raw(raw: ffi::MPI_Comm, traffic: &Arc<Traffic>) -> Result<Communicator> {
        let (mut rank, mut size) = (0, 0);
        check("MPI_Comm_rank", ffi::MPI_Comm_rank(raw, &mut rank))?;
        check("MPI_Comm_size", ffi::MPI_Comm_size(raw, &mut size))?;
        Ok(Communicator {
            raw,
            rank: rank as usize,
            size: size as usize,
            traffic: traffic.clone(),
            arrivals: Arc::default(),
        })
    }

    pub fn barrier(&self) -> Result<()> {
        self.traffic.add(0);
        // SAFETY: `raw` is a valid communicator.
        self.watched(|| check("MPI_Barrier", unsafe { ffi::MPI_Barrier(self.raw) }))
    }

    /// Makes a blocking call, of which the watchdog knows.
    fn watched(&self, call: impl FnOnce() -> Result<()>) -> Result<()> {
        self.arrivals.begin();
        let result = call();
        self.arrivals.complete();
        result
    }

    /// Replaces `count` elements at `data` by their combination over ranks.
    ///
    /// # Safety
    /// `data` points to `count` elements of the kind named, which nobody else touches meanwhile.
    pub unsafe fn all_reduce(&self, data: *mut c_void, count: usize, element: Element, combine: Combine) -> Result<()> {
        for (offset, piece) in pieces(count, MAX_COUNT) {
            self.traffic.add(piece as usize * element.bytes());
            let data = data.byte_add(offset * element.bytes());
            let op = combine.op();
            self.watched(|| {
                let datatype = element.datatype();
                let code = ffi::MPI_Allreduce(dingo_mpi_in_place(), data, piece, datatype, op, self.raw);
                check("MPI_Allreduce", code)
            })?;
        }
        Ok(())
    }

    /// Starts to replace `count` elements at `data` by their sum over ranks.
    ///
    /// # Safety
    /// As `all_reduce`, until `Pending::done` has said true.
    pub unsafe fn start_all_reduce_sum(&self, data: *mut c_void, count: usize, element: Element) -> Result<Pending> {
        let mut requests = Vec::new();
        self.arrivals.begin();
        for (offset, piece) in pieces(count, MAX_COUNT) {
            self.traffic.add(piece as usize * element.bytes());
            let data = data.byte_add(offset * element.bytes());
            let mut request = ffi::RSMPI_REQUEST_NULL;
            let (datatype, op) = (element.datatype(), ffi::RSMPI_SUM);
            let code = ffi::MPI_Iallreduce(dingo_mpi_in_place(), data, piece, datatype, op, self.raw, &mut request);
            check("MPI_Iallreduce", code)?;
            requests.push(request);
        }
        let arrivals = self.arrivals.clone();
        Ok(Pending {
            requests,
            complete: false,
            arrivals,
        })
    }

    /// # Safety
    /// `data` points to `count` elements of the kind named, which nobody else touches meanwhile.
    pub unsafe fn broadcast(&self, data: *mut c_void, count: usize, element: Element, root: usize) -> Result<()> {
        for (offset, piece) in pieces(count, MAX_COUNT) {
            self.traffic.add(piece as usize * element.bytes());
            let data = data.byte_add(offset * element.bytes());
            self.watched(|| {
                let code = ffi::MPI_Bcast(data, piece, element.datatype(), root as c_int, self.raw);
                check("MPI_Bcast", code)
            })?;
        }
        Ok(())
    }

    /// Gathers `count` elements from each rank, in the order of ranks.
    ///
    /// # Safety
    /// `local` points to `count`, `gathered` to `count * size` elements of the kind named.
    pub unsafe fn all_gather(
        &self,
        local: *const c_void,
        gathered: *mut c_void,
        count: usize,
        element: Element,
    ) -> Result<()> {
        if count > MAX_COUNT / self.size {
            return Err(SpmdError::Usage(format!(
                "gathering {count} elements per rank is too much"
            )));
        }
        self.traffic.add(count * element.bytes());
        let (datatype, count) = (element.datatype(), count as c_int);
        self.watched(|| {
            let code = ffi::MPI_Allgather(local, count, datatype, gathered, count, datatype, self.raw);
            check("MPI_Allgather", code)
        })
    }

    /// Sends a few numbers to a rank, which is to look for them. Short messages do not wait for that.
    pub fn send(&self, numbers: &[u64], to: usize) -> Result<()> {
        let (data, count) = (numbers.as_ptr().cast(), numbers.len() as c_int);
        // SAFETY: a live slice of this many numbers.
        let code = unsafe { ffi::MPI_Send(data, count, Element::U64.datatype(), to as c_int, TAG, self.raw) };
        check("MPI_Send", code)
    }

    /// Takes a message of this many numbers from any rank, if one has come.
    pub fn receive_if_there(&self, numbers: &mut [u64]) -> Result<bool> {
        let mut there: c_int = 0;
        // SAFETY: valid places for the results; who looks is the only one that receives from this communicator.
        unsafe {
            let (any, ignored) = (ffi::RSMPI_ANY_SOURCE, ffi::RSMPI_STATUS_IGNORE);
            check("MPI_Iprobe", ffi::MPI_Iprobe(any, TAG, self.raw, &mut there, ignored))?;
            if there == 0 {
                return Ok(false);
            }
            let (data, count) = (numbers.as_mut_ptr().cast(), numbers.len() as c_int);
            let code = ffi::MPI_Recv(data, count, Element::U64.datatype(), any, TAG, self.raw, ignored);
            check("MPI_Recv", code)?;
        }
        Ok(true)
    }
}

impl Pending {
    /// Whether the collective is complete; lets MPI move its data.
    pub fn done(&mut self) -> Result<bool> {
        if self.complete {
            return Ok(true);
        }
        let mut flag: c_int = 0;
        // SAFETY: the requests are ours, MPI sets each to null when it completes.
        let code = unsafe {
            let requests = self.requests.as_mut_ptr();
            ffi::MPI_Testall(
                self.requests.len() as c_int,
                requests,
                &mut flag,
                ffi::RSMPI_STATUSES_IGNORE,
            )
        };
        check("MPI_Testall", code)?;
        self.complete = flag != 0;
        if self.complete {
            self.arrivals.complete();
        }
        Ok(self.complete)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_cover_the_buffer() {
        let all = |count| pieces(count, 10).collect::<Vec<_>>();
        assert_eq!(all(0), [(0, 0)]);
        assert_eq!(all(10), [(0, 10)]);
        assert_eq!(all(21), [(0, 10), (10, 10), (20, 1)]);
    }
}
