// Collectives on GPUs: libtorch's wrapper of NCCL, and from the same library what the wrapper does not offer for one tensor
// a rank.

#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAGuard.h>
#include <nccl.h>
#include <torch/csrc/cuda/nccl.h>

#include <cstring>
#include <vector>

#include "guard.h"
#include "stream.h"

namespace nccl = torch::cuda::nccl;

namespace {

ncclComm_t raw(void* communicator) { return static_cast<ncclComm_t>(communicator); }

void check(const char* call, ncclResult_t result) {
  TORCH_CHECK(result == ncclSuccess, call, ": ", ncclGetErrorString(result), ": ", ncclGetLastError(nullptr));
}

// Of what goes through NCCL: all of a contiguous tensor.
ncclDataType_t data_type(const at::Tensor& tensor) {
  TORCH_CHECK(tensor.is_cuda() && tensor.is_contiguous(), "NCCL needs a contiguous tensor on a GPU; this one of shape ",
              tensor.sizes(), " is on ", tensor.device());
  switch (tensor.scalar_type()) {
    case at::kFloat:
      return ncclFloat32;
    case at::kDouble:
      return ncclFloat64;
    case at::kLong:
      return ncclInt64;
    default:
      TORCH_CHECK(false, "NCCL carries Float, Double and Int64 tensors here, not ", tensor.scalar_type());
  }
}

}  // namespace

extern "C" {

// Major, minor, patch.
char* dingo_nccl_version(int32_t* version) {
  return dingo::guard([&] {
    const std::uint64_t packed = nccl::version();
    version[0] = static_cast<int32_t>(packed >> 32);
    version[1] = static_cast<int32_t>(packed >> 16 & 0xffff);
    version[2] = static_cast<int32_t>(packed & 0xffff);
  });
}

char* dingo_nccl_unique_id(char* id) {
  return dingo::guard([&] {
    nccl::ncclUniqueId drawn;
    nccl::get_unique_id(drawn);
    std::memcpy(id, drawn.internal, sizeof(drawn.internal));
  });
}

// Waits until all ranks have come here with the same id. The communicator belongs to this GPU.
char* dingo_nccl_init(const char* id, int32_t ranks, int32_t rank, int32_t device, void** communicator) {
  return dingo::guard([&] {
    const c10::cuda::CUDAGuard guard(static_cast<c10::DeviceIndex>(device));
    nccl::ncclUniqueId drawn;
    std::memcpy(drawn.internal, id, sizeof(drawn.internal));
    try {
      *communicator = nccl::comm_init_rank(ranks, drawn, rank);
    } catch (const c10::Error& error) {
      TORCH_CHECK(false, error.what_without_backtrace(), ": ", ncclGetLastError(nullptr));
    }
  });
}

char* dingo_nccl_all_reduce_sum(void* communicator, const at::Tensor* tensor, DingoCudaStream on) {
  return dingo::guard([&] {
    data_type(*tensor);
    const std::vector<at::Tensor> inputs{*tensor};
    std::vector<at::Tensor> outputs{*tensor};
    nccl::all_reduce(inputs, outputs, static_cast<int32_t>(nccl::ncclRedOp::Sum), {stream(on)}, {communicator});
  });
}

// Into [ranks, k] from k elements on each.
char* dingo_nccl_all_gather(void* communicator, const at::Tensor* local, const at::Tensor* gathered, DingoCudaStream on) {
  return dingo::guard([&] {
    const auto type = data_type(*local);
    TORCH_CHECK(type == data_type(*gathered), "NCCL gathers tensors of one type");
    const c10::cuda::CUDAGuard guard(local->device());
    check("ncclAllGather", ncclAllGather(local->const_data_ptr(), gathered->mutable_data_ptr(), local->numel(), type,
                                         raw(communicator), stream(on)));
  });
}

char* dingo_nccl_broadcast(void* communicator, const at::Tensor* tensor, int32_t root, DingoCudaStream on) {
  return dingo::guard([&] {
    const auto type = data_type(*tensor);
    const c10::cuda::CUDAGuard guard(tensor->device());
    void* data = tensor->mutable_data_ptr();
    check("ncclBroadcast", ncclBroadcast(data, data, tensor->numel(), type, root, raw(communicator), stream(on)));
  });
}

// What has gone wrong since, if anything, is the message. Any thread may ask.
char* dingo_nccl_health(void* communicator) {
  return dingo::guard([&] {
    ncclResult_t state = ncclSuccess;
    check("ncclCommGetAsyncError", ncclCommGetAsyncError(raw(communicator), &state));
    TORCH_CHECK(state == ncclSuccess || state == ncclInProgress, ncclGetErrorString(state), ": ",
                ncclGetLastError(raw(communicator)));
  });
}

// Takes back what is under way; the communicator is gone.
char* dingo_nccl_abort(void* communicator) {
  return dingo::guard([&] { check("ncclCommAbort", ncclCommAbort(raw(communicator))); });
}

// Once nothing is under way; the communicator is gone.
char* dingo_nccl_destroy(void* communicator) {
  return dingo::guard([&] { check("ncclCommDestroy", ncclCommDestroy(raw(communicator))); });
}

}  // extern "C"
