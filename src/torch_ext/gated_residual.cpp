// The end of a gated residual block, skip + a * sigmoid(gate), as one autograd function: on the host for matrices of one
// type by kernels/gated_residual.h, else by libtorch's operations.

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "guard.h"
#include "host_tensors.h"
#include "kernels/gated_residual.h"

namespace {

using at::Tensor;
using dingo::data;
using dingo::mutable_data;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

template <typename Stored>
class GatedResidual final : public torch::autograd::Function<GatedResidual<Stored>> {
 public:
  static Tensor forward(AutogradContext* ctx, const Tensor& skip_input, const Tensor& a_input, const Tensor& gate_input,
                        int64_t level) {
    const Tensor skip = skip_input.contiguous(), a = a_input.contiguous();
    // A column slice of a wider matrix is read where it is.
    const Tensor gate = gate_input.stride(1) == 1 ? gate_input : gate_input.contiguous();
    const int64_t rows = a.size(0), features = a.size(1), stride = gate.stride(0);
    const Tensor y = dingo::empty_host(a.sizes(), a.scalar_type());
    dingo::share_out(rows, features, [&](int64_t begin, int64_t end) {
      const int64_t at = begin * features;
      dingo::gated_loops<Stored>(level).forward(data<Stored>(skip) + at, data<Stored>(a) + at,
                                                data<Stored>(gate) + begin * stride, stride, end - begin, features,
                                                mutable_data<Stored>(y) + at);
    });
    ctx->save_for_backward({a, gate});
    ctx->saved_data["level"] = level;
    return y;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grad_outputs) {
    const auto saved = ctx->get_saved_variables();
    const Tensor &a = saved[0], &gate = saved[1];
    const Tensor dy = grad_outputs[0].contiguous();
    const int64_t level = ctx->saved_data["level"].toInt();
    const int64_t rows = a.size(0), features = a.size(1), stride = gate.stride(0);
    const bool for_a = ctx->needs_input_grad(1), for_gate = ctx->needs_input_grad(2);
    const Tensor da = for_a ? dingo::empty_host(a.sizes(), a.scalar_type()) : Tensor();
    const Tensor dgate = for_gate ? dingo::empty_host(a.sizes(), a.scalar_type()) : Tensor();
    if (for_a || for_gate) {
      dingo::share_out(rows, features, [&](int64_t begin, int64_t end) {
        const int64_t at = begin * features;
        dingo::gated_loops<Stored>(level).backward(
            data<Stored>(dy) + at, data<Stored>(a) + at, data<Stored>(gate) + begin * stride, stride, end - begin,
            features, for_a ? mutable_data<Stored>(da) + at : nullptr,
            for_gate ? mutable_data<Stored>(dgate) + at : nullptr);
      });
    }
    return {dy, da, dgate, Tensor()};
  }
};

Tensor gated_residual(const Tensor& skip, const Tensor& a, const Tensor& gate, int64_t level) {
  const auto type = a.scalar_type();
  if (a.is_cpu() && skip.scalar_type() == type && gate.scalar_type() == type) {
    switch (type) {
      case at::kFloat:
        return GatedResidual<float>::apply(skip, a, gate, level);
      case at::kDouble:
        return GatedResidual<double>::apply(skip, a, gate, level);
      case at::kBFloat16:
        return GatedResidual<dingo::BFloat16>::apply(skip, a, gate, level);
      default:
        break;
    }
  }
  return skip + a * at::sigmoid(gate);
}

}  // namespace

extern "C" char* dingo_gated_residual(const Tensor* skip, const Tensor* a, const Tensor* gate, int level,
                                      Tensor** output) {
  return dingo::guard([&] {
    TORCH_CHECK(a->dim() == 2 && skip->sizes() == a->sizes() && gate->sizes() == a->sizes(),
                "a gated residual needs three matrices of one shape, found ", skip->sizes(), ", ", a->sizes(), " and ",
                gate->sizes());
    *output = new Tensor(gated_residual(*skip, *a, *gate, level));
  });
}
