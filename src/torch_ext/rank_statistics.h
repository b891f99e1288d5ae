// The ranks as batch normalization sees them: callbacks into Rust (batch_norm.rs), so that nothing here knows how they
// talk.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <cstdlib>
#include <memory>
#include <string>

namespace dingo {

// The Rust side; a callback returns null or a malloc'ed message.
struct RankCallbacks {
  void* context;
  char* (*all_gather)(void* context, const at::Tensor* local, at::Tensor** gathered);
  char* (*all_reduce_sum)(void* context, const at::Tensor* values);
  void (*drop)(void* context);
};

// Owns the Rust side for as long as a graph may still run its backward.
class RankStatistics final : public torch::CustomClassHolder {
 public:
  explicit RankStatistics(RankCallbacks callbacks) : callbacks_(callbacks) {}
  RankStatistics(const RankStatistics&) = delete;
  RankStatistics& operator=(const RankStatistics&) = delete;
  ~RankStatistics() override { callbacks_.drop(callbacks_.context); }

  // [k] on each rank to [ranks, k] on all.
  at::Tensor all_gather(const at::Tensor& local) const {
    at::Tensor* gathered = nullptr;
    check(callbacks_.all_gather(callbacks_.context, &local, &gathered));
    std::unique_ptr<at::Tensor> owner(gathered);
    return *owner;
  }

  void all_reduce_sum(const at::Tensor& values) const {
    check(callbacks_.all_reduce_sum(callbacks_.context, &values));
  }

 private:
  static void check(char* message) {
    if (message == nullptr) {
      return;
    }
    const std::string text(message);
    free(message);
    TORCH_CHECK(false, text);
  }

  RankCallbacks callbacks_;
};

}  // namespace dingo
