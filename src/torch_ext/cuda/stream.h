// How streams cross the border to Rust.
#pragma once

#include <c10/cuda/CUDAStream.h>

#include <cstdint>

// A stream of libtorch's: it lives as long as the process.
struct DingoCudaStream {
  int64_t id;
  int32_t device;
};

inline c10::cuda::CUDAStream stream(DingoCudaStream of) {
  return c10::cuda::CUDAStream::unpack3(of.id, static_cast<c10::DeviceIndex>(of.device), c10::DeviceType::CUDA);
}
