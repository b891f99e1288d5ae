// CUDA streams and events, and copies that run beside the computation.

#include <ATen/ATen.h>
#include <ATen/cuda/CUDAEvent.h>
#include <c10/cuda/CUDAGuard.h>
#include <memory>

#include "guard.h"
#include "stream.h"

using at::cuda::CUDAEvent;

extern "C" {

char* dingo_cuda_new_stream(int32_t device, DingoCudaStream* out) {
  return dingo::guard([&] {
    const auto found = at::cuda::getStreamFromPool(/*isHighPriority=*/true, static_cast<c10::DeviceIndex>(device));
    *out = {found.id(), device};
  });
}

// The one that the calling thread computes on.
char* dingo_cuda_current_stream(int32_t device, DingoCudaStream* out) {
  return dingo::guard([&] {
    *out = {at::cuda::getCurrentCUDAStream(static_cast<c10::DeviceIndex>(device)).id(), device};
  });
}

char* dingo_cuda_new_event(bool timed, CUDAEvent** out) {
  return dingo::guard([&] { *out = new CUDAEvent(timed ? cudaEventDefault : cudaEventDisableTiming); });
}

void dingo_cuda_delete_event(CUDAEvent* event) {
  // Destroying one may fail after the GPU has; there is no one to tell.
  free(dingo::guard([&] { delete event; }));
}

char* dingo_cuda_record(CUDAEvent* event, DingoCudaStream on) {
  return dingo::guard([&] { event->record(stream(on)); });
}

// What `waits` is given from here on comes after the event. The host does not wait.
char* dingo_cuda_wait(CUDAEvent* event, DingoCudaStream waits) {
  return dingo::guard([&] { event->block(stream(waits)); });
}

char* dingo_cuda_is_past(const CUDAEvent* event, bool* past) {
  return dingo::guard([&] { *past = event->query(); });
}

// The host waits.
char* dingo_cuda_synchronize(const CUDAEvent* event) {
  return dingo::guard([&] { event->synchronize(); });
}

// Between two timed events that are past.
char* dingo_cuda_milliseconds(const CUDAEvent* from, const CUDAEvent* to, float* milliseconds) {
  return dingo::guard([&] { *milliseconds = from->elapsed_time(*to); });
}

// Copies a host tensor to the stream's GPU, on that stream, by way of pinned memory; the host waits only for that first,
// short way. Whoever uses the result on another stream waits for the copy there, and says so with `dingo_cuda_used_on`.
char* dingo_cuda_copy(const at::Tensor* host, DingoCudaStream on, at::Tensor** out) {
  return dingo::guard([&] {
    const c10::cuda::CUDAStreamGuard guard(stream(on));
    const at::Tensor pinned = host->is_pinned() ? *host : host->pin_memory();
    // The allocator of pinned memory keeps it until the copy is made.
    *out = new at::Tensor(pinned.to(stream(on).device(), pinned.scalar_type(), /*non_blocking=*/true));
  });
}

// The tensor's memory is not given to others before what `on` was told so far is done.
char* dingo_cuda_used_on(const at::Tensor* tensor, DingoCudaStream on) {
  return dingo::guard([&] { tensor->record_stream(stream(on).unwrap()); });
}

// Starts a copy of a tensor on the current stream into pinned host memory, to be read when an event after it is past.
char* dingo_cuda_fetch(const at::Tensor* tensor, at::Tensor** out) {
  return dingo::guard([&] {
    const auto options = tensor->options().device(at::kCPU).pinned_memory(true);
    auto host = std::make_unique<at::Tensor>(at::empty(tensor->sizes(), options));
    host->copy_(tensor->detach(), /*non_blocking=*/true);
    *out = host.release();
  });
}

}  // extern "C"
