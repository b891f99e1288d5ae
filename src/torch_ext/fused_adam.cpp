// Adam and AdamW over all parameters in one call each.

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <vector>

#include "guard.h"

namespace {

std::vector<at::Tensor> list(const at::Tensor* const* tensors, size_t count) {
  std::vector<at::Tensor> result;
  result.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    result.push_back(*tensors[i]);
  }
  return result;
}

}  // namespace

extern "C" {

struct DingoAdamOptions {
  double lr, beta1, beta2, weight_decay, eps;
  bool amsgrad, maximize, decoupled_weight_decay;
};

// `max_exp_avg_sqs` is read only with amsgrad. `grad_scale` and `found_inf` may be null.
char* dingo_fused_adam(size_t count, const at::Tensor* const* parameters, const at::Tensor* const* gradients,
                       const at::Tensor* const* exp_avgs, const at::Tensor* const* exp_avg_sqs,
                       const at::Tensor* const* max_exp_avg_sqs, const at::Tensor* const* steps,
                       DingoAdamOptions options, const at::Tensor* grad_scale, const at::Tensor* found_inf) {
  return dingo::guard([&] {
    at::NoGradGuard no_grad;
    const auto maxima = options.amsgrad ? list(max_exp_avg_sqs, count) : std::vector<at::Tensor>();
    const auto step = [&](auto update) {
      update(list(parameters, count), list(gradients, count), list(exp_avgs, count), list(exp_avg_sqs, count), maxima,
             list(steps, count), options.lr, options.beta1, options.beta2, options.weight_decay, options.eps,
             options.amsgrad, options.maximize, dingo::optional_tensor(grad_scale), dingo::optional_tensor(found_inf));
    };
    if (options.decoupled_weight_decay) {
      step(&at::_ops::_fused_adamw_::call);
    } else {
      step(&at::_ops::_fused_adam_::call);
    }
  });
}

}  // extern "C"
