// Divides gradients by the loss scale and looks for infinities and NaNs, in one pass.

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <vector>

#include "guard.h"

extern "C" {

char* dingo_unscale_and_check(size_t count, const at::Tensor* const* gradients, double inverse_scale, bool* finite) {
  return dingo::guard([&] {
    at::NoGradGuard no_grad;
    std::vector<at::Tensor> list;
    list.reserve(count);
    for (size_t i = 0; i < count; ++i) {
      list.push_back(*gradients[i]);
    }
    *finite = true;
    if (list.empty()) {
      return;
    }
    const auto options = list.front().options().dtype(at::kFloat);
    at::Tensor found = at::zeros({1}, options);
    at::_amp_foreach_non_finite_check_and_unscale_(list, found, at::full({1}, inverse_scale, options));
    *finite = found.item<float>() == 0.0f;
  });
}

}  // extern "C"
