// Access to a leaf's gradient: assigning and clearing it, and a hook that runs once it has been accumulated.

#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <memory>

#include "guard.h"

namespace {

// Owns a Rust closure; `drop` releases it.
struct RustHook final : torch::autograd::PostAccumulateGradHook {
  RustHook(void (*call)(void*), void (*drop)(void*), void* closure) : call(call), drop(drop), closure(closure) {}
  RustHook(const RustHook&) = delete;
  RustHook& operator=(const RustHook&) = delete;
  ~RustHook() override { drop(closure); }
  void operator()(const at::Tensor&) override { call(closure); }

  void (*call)(void*);
  void (*drop)(void*);
  void* closure;
};

}  // namespace

extern "C" {

// Takes the closure over in every case, also when it fails.
char* dingo_set_post_accumulate_grad_hook(const at::Tensor* leaf, void (*call)(void*), void (*drop)(void*),
                                          void* closure) {
  return dingo::guard([&] {
    auto hook = std::make_unique<RustHook>(call, drop, closure);
    TORCH_CHECK(leaf->is_leaf() && leaf->requires_grad(), "a gradient hook needs a leaf tensor that requires grad");
    TORCH_CHECK(torch::autograd::impl::post_acc_grad_hooks(*leaf) == nullptr, "the tensor has a gradient hook already");
    torch::autograd::impl::set_post_acc_grad_hooks(*leaf, std::move(hook));
  });
}

char* dingo_remove_post_accumulate_grad_hook(const at::Tensor* leaf) {
  return dingo::guard([&] { torch::autograd::impl::set_post_acc_grad_hooks(*leaf, nullptr); });
}

// A null `gradient` clears it.
char* dingo_set_grad(const at::Tensor* leaf, const at::Tensor* gradient) {
  return dingo::guard([&] {
    if (gradient != nullptr) {
      TORCH_CHECK(gradient->sizes() == leaf->sizes(), "the gradient has shape ", gradient->sizes(), ", the tensor ",
                  leaf->sizes());
      TORCH_CHECK(gradient->scalar_type() == leaf->scalar_type(), "the gradient is ", gradient->scalar_type(),
                  ", the tensor ", leaf->scalar_type());
      TORCH_CHECK(gradient->device() == leaf->device(), "the gradient is on ", gradient->device(), ", the tensor on ",
                  leaf->device());
    }
    leaf->mutable_grad() = dingo::optional_tensor(gradient).value_or(at::Tensor());
  });
}

}  // extern "C"
