// What a training step needs to decide on the device whether it is made, so that the host need not wait to know: the check
// of the gradients, the loss scale, and an optimizer that changes nothing where the check has failed. Called from
// device_decisions.rs.

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

// `inverse_scale` is a float, [1]. `found` becomes another, 1 where `loss` (one number) or a gradient is not finite, else 0.
char* dingo_unscale_and_check(size_t count, const at::Tensor* const* gradients, const at::Tensor* inverse_scale,
                              const at::Tensor* loss, at::Tensor** found) {
  return dingo::guard([&] {
    at::NoGradGuard no_grad;
    at::Tensor result = loss->isfinite().logical_not().to(at::kFloat).reshape({1});
    if (count > 0) {
      at::_amp_foreach_non_finite_check_and_unscale_(list(gradients, count), result, *inverse_scale);
    }
    *found = new at::Tensor(result);
  });
}

// GradScaler's rule; `scale` is a float, `growth_tracker` an int, each [1].
char* dingo_update_scale(const at::Tensor* scale, const at::Tensor* growth_tracker, const at::Tensor* found,
                         double growth_factor, double backoff_factor, int64_t growth_interval) {
  return dingo::guard([&] {
    at::NoGradGuard no_grad;
    at::Tensor current = *scale, tracker = *growth_tracker;
    at::_amp_update_scale_(current, tracker, *found, growth_factor, backoff_factor, growth_interval);
  });
}

struct DingoFusedAdam {
  double lr, beta1, beta2, weight_decay, eps;
  bool amsgrad, decoupled_weight_decay;
};

// `steps` are floats, [], one a parameter: the updates before this one, which are counted up unless `found` is 1.
// `max_exp_avg_sqs` is read only with amsgrad.
char* dingo_fused_adam(size_t count, const at::Tensor* const* parameters, const at::Tensor* const* gradients,
                       const at::Tensor* const* exp_avgs, const at::Tensor* const* exp_avg_sqs,
                       const at::Tensor* const* max_exp_avg_sqs, const at::Tensor* const* steps, DingoFusedAdam options,
                       const at::Tensor* found) {
  return dingo::guard([&] {
    if (count == 0) {
      return;
    }
    at::NoGradGuard no_grad;
    const auto maxima = options.amsgrad ? list(max_exp_avg_sqs, count) : std::vector<at::Tensor>();
    const auto counts = list(steps, count);
    at::_foreach_add_(counts, (1.0 - *found).reshape({}));
    const auto step = [&](auto update) {
      update(list(parameters, count), list(gradients, count), list(exp_avgs, count), list(exp_avg_sqs, count), maxima,
             counts, options.lr, options.beta1, options.beta2, options.weight_decay, options.eps, options.amsgrad,
             /*maximize=*/false, /*grad_scale=*/std::nullopt, /*found_inf=*/*found);
    };
    if (options.decoupled_weight_decay) {
      step(&at::_ops::_fused_adamw_::call);
    } else {
      step(&at::_ops::_fused_adam_::call);
    }
  });
}

}  // extern "C"
