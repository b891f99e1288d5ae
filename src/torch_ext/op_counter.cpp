// Counts the calls of ATen operators in the whole process.

#include <ATen/record_function.h>

#include <atomic>
#include <cstdint>
#include <cstring>

#include "guard.h"

namespace {

std::atomic<uint64_t> calls{0};

std::unique_ptr<at::ObserverContext> count(const at::RecordFunction& function) {
  if (std::strncmp(function.name(), "aten::", 6) == 0) {
    calls.fetch_add(1, std::memory_order_relaxed);
  }
  return nullptr;
}

}  // namespace

extern "C" {

char* dingo_op_counter_start(uint64_t* handle) {
  return dingo::guard([&] {
    *handle = at::addGlobalCallback(at::RecordFunctionCallback(count).scopes({at::RecordScope::FUNCTION}));
  });
}

char* dingo_op_counter_stop(uint64_t handle) {
  return dingo::guard([&] { at::removeCallback(handle); });
}

uint64_t dingo_op_counter_calls() { return calls.load(std::memory_order_relaxed); }

}  // extern "C"
