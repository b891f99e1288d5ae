// Selecting features of a batch, as one autograd function without operator calls inside.

#include "feature_list.h"

#include <ATen/Dispatch.h>
#include <ATen/EmptyTensor.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "guard.h"

namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Gives the selected features and, if asked for, all of them again: who uses both a part and the whole of a batch saves
// the sum of two gradients in backward.
class SelectFeatures final : public torch::autograd::Function<SelectFeatures> {
 public:
  static variable_list forward(AutogradContext* ctx, const Tensor& input, const std::vector<int64_t>& list, bool all) {
    const Tensor inputs = dingo::packed_rows(input);
    const int64_t batch = inputs.size(0), width = inputs.size(1), count = static_cast<int64_t>(list.size());
    const Tensor selected = at::detail::empty_cpu({batch, count}, inputs.options());
    variable_list outputs{selected};
    if (all) {
      outputs.push_back(at::detail::empty_cpu({batch, width}, inputs.options()));
    }
    AT_DISPATCH_FLOATING_TYPES(inputs.scalar_type(), "select_features", [&] {
      auto* target = selected.mutable_data_ptr<scalar_t>();
      for (int64_t row = 0; row < batch; ++row) {
        const auto* source = inputs.const_data_ptr<scalar_t>() + row * inputs.stride(0);
        for (const int64_t place : list) *target++ = source[place];
        if (all) std::copy(source, source + width, outputs[1].mutable_data_ptr<scalar_t>() + row * width);
      }
    });
    ctx->set_materialize_grads(false);
    ctx->saved_data["list"] = list;
    ctx->saved_data["width"] = width;
    return outputs;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grad_outputs) {
    TORCH_CHECK(!at::GradMode::is_enabled(), "second derivatives of selected features are not implemented");
    const auto list = ctx->saved_data["list"].toIntVector();
    const int64_t width = ctx->saved_data["width"].toInt();
    const Tensor selected = grad_outputs[0].defined() ? dingo::packed_rows(grad_outputs[0]) : Tensor();
    const bool has_whole = grad_outputs.size() > 1 && grad_outputs[1].defined();
    const Tensor whole = has_whole ? dingo::packed_rows(grad_outputs[1]) : Tensor();
    if (!selected.defined()) {
      return {whole, Tensor(), Tensor()};
    }
    const int64_t batch = selected.size(0), count = static_cast<int64_t>(list.size());
    const Tensor gradient = at::detail::empty_cpu({batch, width}, selected.options());
    AT_DISPATCH_FLOATING_TYPES(selected.scalar_type(), "select_features_backward", [&] {
      for (int64_t row = 0; row < batch; ++row) {
        auto* target = gradient.mutable_data_ptr<scalar_t>() + row * width;
        if (has_whole) {
          const auto* source = whole.const_data_ptr<scalar_t>() + row * whole.stride(0);
          std::copy(source, source + width, target);
        } else {
          std::fill(target, target + width, scalar_t(0));
        }
        const auto* source = selected.const_data_ptr<scalar_t>() + row * selected.stride(0);
        for (int64_t i = 0; i < count; ++i) target[list[i]] += source[i];
      }
    });
    return {gradient, Tensor(), Tensor()};
  }
};

}  // namespace

extern "C" {

// `all`, if not null, receives a copy of the inputs.
char* dingo_select_features(const Tensor* inputs, const Tensor* places, Tensor** selected, Tensor** all) {
  return dingo::guard([&] {
    TORCH_CHECK(inputs->dim() == 2 && inputs->is_cpu(), "features are selected from [batch, features] in host memory, found ",
                inputs->sizes());
    const auto outputs = SelectFeatures::apply(*inputs, dingo::feature_list(*places, inputs->size(1)), all != nullptr);
    if (all != nullptr) {
      *all = new Tensor(outputs[1]);
    }
    *selected = new Tensor(outputs[0]);
  });
}

}  // extern "C"
