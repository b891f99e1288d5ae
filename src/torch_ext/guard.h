// What every C++ entry point shares: no exception leaves it, it becomes a message that Rust owns.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

#include <cstdlib>
#include <cstring>
#include <exception>
#include <optional>

namespace dingo {

// Runs `body`; returns null, or what went wrong as a malloc'ed string for `free`.
template <typename Body>
char* guard(Body&& body) noexcept {
  try {
    body();
    return nullptr;
  } catch (const c10::Error& error) {
    return strdup(error.what_without_backtrace());
  } catch (const std::exception& error) {
    return strdup(error.what());
  } catch (...) {
    return strdup("unknown C++ exception");
  }
}

// A tensor argument that may be absent (a null pointer).
inline std::optional<at::Tensor> optional_tensor(const at::Tensor* tensor) {
  return tensor == nullptr ? std::nullopt : std::make_optional(*tensor);
}

}  // namespace dingo
