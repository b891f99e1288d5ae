// Which GPUs this process sees, what they are, and which one it works on.

#include <ATen/Context.h>
#include <ATen/cuda/CUDAContextLight.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <cuda_runtime_api.h>

#include <cstdint>
#include <cstdio>
#include <cstring>

#include "guard.h"

extern "C" {

struct DingoCudaDevice {
  char name[256];
  uint8_t uuid[16];
  char pci[32];  // as nvidia-smi writes it, in lower case: 00000000:17:00.0
  uint64_t memory;
  int32_t capability[2];
};

// How many there are; where CUDA finds none, its reason is the message.
char* dingo_cuda_device_count(int32_t* count) {
  return dingo::guard([&] {
    int found = 0;
    const cudaError_t error = c10::cuda::GetDeviceCount(&found);
    (void)cudaGetLastError();  // a failed query must not fail the next call
    TORCH_CHECK(error == cudaSuccess, cudaGetErrorString(error));
    TORCH_CHECK(found > 0, "no CUDA-capable device is detected");
    *count = found;
  });
}

// Makes no context on it.
char* dingo_cuda_device(int32_t index, DingoCudaDevice* device) {
  return dingo::guard([&] {
    const cudaDeviceProp* found = at::cuda::getDeviceProperties(static_cast<c10::DeviceIndex>(index));
    static_assert(sizeof(found->name) == sizeof(device->name) && sizeof(found->uuid) == sizeof(device->uuid));
    std::memcpy(device->name, found->name, sizeof(device->name));
    std::memcpy(device->uuid, &found->uuid, sizeof(device->uuid));
    std::snprintf(device->pci, sizeof(device->pci), "%08x:%02x:%02x.0", found->pciDomainID, found->pciBusID,
                  found->pciDeviceID);
    device->memory = found->totalGlobalMem;
    device->capability[0] = found->major;
    device->capability[1] = found->minor;
  });
}

// Of the calling thread: where its tensors go that name no other GPU.
char* dingo_cuda_set_device(int32_t index) {
  return dingo::guard([&] {
    at::globalContext().lazyInitDevice(c10::DeviceType::CUDA);
    c10::cuda::set_device(static_cast<c10::DeviceIndex>(index));
  });
}

// As CUDA and cuDNN count: 13000 is 13.0.
char* dingo_cuda_versions(int32_t* runtime, int32_t* driver, int64_t* cudnn) {
  return dingo::guard([&] {
    int number = 0;
    C10_CUDA_CHECK(cudaRuntimeGetVersion(&number));
    *runtime = number;
    C10_CUDA_CHECK(cudaDriverGetVersion(&number));
    *driver = number;
    const auto& hooks = at::detail::getCUDAHooks();
    *cudnn = hooks.compiledWithCuDNN() ? hooks.versionRuntimeCuDNN() : 0;
  });
}

// Bytes of libtorch's allocator on a GPU: allocated, reserved, and the most allocated since this was last asked.
char* dingo_cuda_take_memory(int32_t index, int64_t* allocated, int64_t* reserved, int64_t* peak) {
  return dingo::guard([&] {
    using c10::CachingAllocator::StatType;
    const auto device = static_cast<c10::DeviceIndex>(index);
    const auto statistics = c10::cuda::CUDACachingAllocator::getDeviceStats(device);
    constexpr auto all = static_cast<size_t>(StatType::AGGREGATE);
    *allocated = statistics.allocated_bytes[all].current;
    *reserved = statistics.reserved_bytes[all].current;
    *peak = statistics.allocated_bytes[all].peak;
    c10::cuda::CUDACachingAllocator::resetPeakStats(device);
  });
}

}  // extern "C"
