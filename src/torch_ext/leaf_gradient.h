// Where a layer's backward puts the gradient of a parameter.
#pragma once

#include <ATen/EmptyTensor.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

namespace dingo {

// Autograd adds each gradient to a leaf's `.grad` in a pass of its own. A leaf that has a post-accumulate hook and a
// gradient already belongs to a gradient reducer (gradient.cpp), and for it a layer can add where it computes: what is
// computed goes straight into `.grad`, and autograd is given nothing to add. It calls the hook all the same, once all
// contributions are there.
class LeafGradient {
 public:
  // Float, on the host. `needed` is whether the backward under way wants it.
  LeafGradient(const at::Tensor& parameter, bool needed) {
    if (!needed) {
      return;
    }
    in_place_ = parameter.is_leaf() && torch::autograd::impl::post_acc_grad_hooks(parameter) != nullptr &&
                parameter.grad().defined() && parameter.grad().is_contiguous() &&
                parameter.grad().scalar_type() == at::kFloat;
    gradient_ = in_place_ ? parameter.grad()
                          : at::Tensor(at::detail::empty_cpu(parameter.sizes(), at::TensorOptions(at::kFloat)));
  }

  bool is_needed() const { return gradient_.defined(); }
  float* data() const { return gradient_.mutable_data_ptr<float>(); }
  // What the memory is to be multiplied by before the gradient is added: 1 if it counts, 0 if it was never set.
  float beta() const { return in_place_ ? 1.0f : 0.0f; }

  // Once the gradient is there: what to give to autograd.
  at::Tensor finish() const { return in_place_ ? at::Tensor() : gradient_; }

 private:
  at::Tensor gradient_;
  bool in_place_ = false;
};

}  // namespace dingo
