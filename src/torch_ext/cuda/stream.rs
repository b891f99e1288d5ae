//! CUDA streams and events, and copies that run beside the computation.

use super::super::error::{check, TorchExtError};
use std::ffi::{c_char, c_void};
use tch::Tensor;
use torch_sys::C_tensor;

/// A queue of work on a GPU. libtorch's streams live as long as the process.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stream {
    id: i64,
    device: i32,
}

extern "C" {
    fn dingo_cuda_new_stream(device: i32, out: *mut Stream) -> *mut c_char;
    fn dingo_cuda_current_stream(device: i32, out: *mut Stream) -> *mut c_char;
    fn dingo_cuda_new_event(timed: bool, out: *mut *mut c_void) -> *mut c_char;
    fn dingo_cuda_delete_event(event: *mut c_void);
    fn dingo_cuda_record(event: *mut c_void, on: Stream) -> *mut c_char;
    fn dingo_cuda_wait(event: *mut c_void, waits: Stream) -> *mut c_char;
    fn dingo_cuda_is_past(event: *const c_void, past: *mut bool) -> *mut c_char;
    fn dingo_cuda_synchronize(event: *const c_void) -> *mut c_char;
    fn dingo_cuda_milliseconds(from: *const c_void, to: *const c_void, milliseconds: *mut f32) -> *mut c_char;
    fn dingo_cuda_copy(host: *const C_tensor, on: Stream, out: *mut *mut C_tensor) -> *mut c_char;
    fn dingo_cuda_used_on(tensor: *const C_tensor, on: Stream) -> *mut c_char;
    fn dingo_cuda_fetch(tensor: *const C_tensor, out: *mut *mut C_tensor) -> *mut c_char;
}

impl Stream {
    /// One beside the computation, which goes before it where both have work ready.
    ///
    /// # Errors
    /// What CUDA says.
    pub fn new(device: usize) -> Result<Stream, TorchExtError> {
        let mut stream = Stream { id: 0, device: 0 };
        // SAFETY: a valid place for the result.
        unsafe { check(dingo_cuda_new_stream(device as i32, &mut stream))? };
        Ok(stream)
    }
}

/// The stream that the calling thread computes on.
///
/// # Errors
/// What CUDA says.
pub fn current_stream(device: usize) -> Result<Stream, TorchExtError> {
    let mut stream = Stream { id: 0, device: 0 };
    // SAFETY: a valid place for the result.
    unsafe { check(dingo_cuda_current_stream(device as i32, &mut stream))? };
    Ok(stream)
}

/// A point in a stream's work.
#[derive(Debug)]
pub struct Event(*mut c_void);

// SAFETY: CUDA's calls on events may come from any thread; libtorch's wrapper changes its own fields only when it records,
// which `record` lets one thread do at a time.
unsafe impl Send for Event {}
unsafe impl Sync for Event {}

impl Event {
    /// One that was never recorded counts as past. Only two timed ones have a time between them.
    ///
    /// # Errors
    /// What CUDA says.
    pub fn new(timed: bool) -> Result<Event, TorchExtError> {
        let mut event = std::ptr::null_mut();
        // SAFETY: a valid place for the result.
        unsafe { check(dingo_cuda_new_event(timed, &mut event))? };
        Ok(Event(event))
    }

    /// The event is past when what the stream was told so far is done.
    ///
    /// # Errors
    /// What CUDA says, also of the stream's earlier work.
    pub fn record(&mut self, on: Stream) -> Result<(), TorchExtError> {
        // SAFETY: the event is alive, and nobody else uses it meanwhile.
        unsafe { check(dingo_cuda_record(self.0, on)) }
    }

    /// What the stream is told from here on comes after the event. The host does not wait.
    ///
    /// # Errors
    /// What CUDA says.
    pub fn delay(&self, stream: Stream) -> Result<(), TorchExtError> {
        // SAFETY: the event is alive; waiting changes nothing in it.
        unsafe { check(dingo_cuda_wait(self.0, stream)) }
    }

    /// Whether the event is past.
    ///
    /// # Errors
    /// What CUDA says of the work before it.
    pub fn is_past(&self) -> Result<bool, TorchExtError> {
        let mut past = false;
        // SAFETY: the event is alive, the place valid.
        unsafe { check(dingo_cuda_is_past(self.0, &mut past))? };
        Ok(past)
    }

    /// Waits until the event is past.
    ///
    /// # Errors
    /// What CUDA says of the work before it.
    pub fn synchronize(&self) -> Result<(), TorchExtError> {
        // SAFETY: the event is alive.
        unsafe { check(dingo_cuda_synchronize(self.0)) }
    }

    /// Milliseconds between two timed events that are past.
    ///
    /// # Errors
    /// Others.
    pub fn milliseconds_until(&self, later: &Event) -> Result<f64, TorchExtError> {
        let mut milliseconds = 0.0;
        // SAFETY: both are alive, the place valid.
        unsafe { check(dingo_cuda_milliseconds(self.0, later.0, &mut milliseconds))? };
        Ok(f64::from(milliseconds))
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: ours, and nobody's from here on.
        unsafe { dingo_cuda_delete_event(self.0) }
    }
}

/// Copies a host tensor to the stream's GPU, on that stream, by way of pinned memory. A stream that uses the result waits for
/// the copy first, and [`used_on`] says that it does.
///
/// # Errors
/// What libtorch says, of memory for example.
pub fn copy_to_device(host: &Tensor, on: Stream) -> Result<Tensor, TorchExtError> {
    let mut copy = std::ptr::null_mut();
    // SAFETY: the tensor is alive; on success `copy` is a new handle that is ours.
    unsafe {
        check(dingo_cuda_copy(host.as_ptr(), on, &mut copy))?;
        Ok(Tensor::from_ptr(copy))
    }
}

/// The tensor's memory is not given to others before what the stream was told so far is done: for a stream other than the one
/// it was made on.
///
/// # Errors
/// A tensor that is not on a GPU.
pub fn used_on(tensor: &Tensor, stream: Stream) -> Result<(), TorchExtError> {
    // SAFETY: the tensor is alive.
    unsafe { check(dingo_cuda_used_on(tensor.as_ptr(), stream)) }
}

/// Starts a copy of a tensor, on the current stream, into pinned host memory: to be read when an event after it is past.
///
/// # Errors
/// What libtorch says.
pub fn fetch(tensor: &Tensor) -> Result<Tensor, TorchExtError> {
    let mut copy = std::ptr::null_mut();
    // SAFETY: as in `copy_to_device`.
    unsafe {
        check(dingo_cuda_fetch(tensor.as_ptr(), &mut copy))?;
        Ok(Tensor::from_ptr(copy))
    }
}
