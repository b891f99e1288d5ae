//! How a rank that fails takes the job down: promptly, and with its name on the message.

use mpi::ffi;
use std::io::Write;

/// The exit status of a panic, and of any other failure that has no status of its own.
pub(super) const GENERAL_FAILURE: i32 = 1;

/// Ends the processes of all ranks with this status. For threads that have no [`World`](super::World). Never returns, whatever state MPI is in.
pub fn abort_job(status: i32) -> ! {
    let _ = std::io::stdout().flush();
    if mpi::environment::is_initialized() && !mpi::environment::is_finalized() {
        // SAFETY: MPI is running; MPI_Abort may be called from any thread at any time.
        unsafe { ffi::MPI_Abort(ffi::RSMPI_COMM_WORLD, status) };
    }
    // Without the exit handlers: other threads may still be using what those would tear down.
    // SAFETY: ends the process at once.
    unsafe { libc::_exit(status) }
}

/// From here on a panic on any thread of this rank is told with rank and host and ends the job. A thread that died
/// quietly would leave the other ranks waiting in a collective.
pub(super) fn abort_job_on_panic(who: String) {
    let tell = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        tell(panic);
        eprintln!("{who} panicked; ending the job");
        abort_job(GENERAL_FAILURE);
    }));
}
