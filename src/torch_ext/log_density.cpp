// The end of a flow: the density of the noise and the log determinants of all transforms, added up in one pass.

#include <ATen/EmptyTensor.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cmath>
#include <vector>

#include "guard.h"

namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// [batch], or one number for all samples.
bool is_one_number(const Tensor& term) { return term.dim() == 0; }

class LogDensity final : public torch::autograd::Function<LogDensity> {
 public:
  // `tensors` are the terms, then, with `has_noise`, the noise [batch, features].
  static Tensor forward(AutogradContext* ctx, at::TensorList tensors, bool has_noise, int64_t batch) {
    variable_list saved;
    std::vector<double> sums(batch);
    const size_t terms = tensors.size() - (has_noise ? 1 : 0);
    std::vector<bool> one_number;
    for (size_t t = 0; t < terms; ++t) {
      const Tensor term = tensors[t].contiguous();
      const float* numbers = term.const_data_ptr<float>();
      const int64_t step = is_one_number(term) ? 0 : 1;
      for (int64_t i = 0; i < batch; ++i) sums[i] += numbers[i * step];
      one_number.push_back(step == 0);
    }
    if (has_noise) {
      const Tensor noise = tensors[terms].contiguous();
      const int64_t features = noise.size(1);
      const double log_z = 0.5 * static_cast<double>(features) * std::log(2 * M_PI);
      const float* z = noise.const_data_ptr<float>();
      for (int64_t i = 0; i < batch; ++i) {
        float squares = 0;
        for (int64_t j = 0; j < features; ++j) squares += z[i * features + j] * z[i * features + j];
        sums[i] -= 0.5 * squares + log_z;
      }
      saved.push_back(noise);
    }
    const Tensor total = at::detail::empty_cpu({batch}, at::TensorOptions(at::kFloat));
    for (int64_t i = 0; i < batch; ++i) total.mutable_data_ptr<float>()[i] = static_cast<float>(sums[i]);
    ctx->save_for_backward(std::move(saved));
    ctx->saved_data["terms"] = static_cast<int64_t>(terms);
    std::vector<int64_t> flags(one_number.begin(), one_number.end());
    ctx->saved_data["one_number"] = flags;
    return total;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grad_outputs) {
    TORCH_CHECK(!at::GradMode::is_enabled(), "densities have first derivatives only");
    const Tensor dy = grad_outputs[0].contiguous();
    const float* d = dy.const_data_ptr<float>();
    const int64_t batch = dy.size(0), terms = ctx->saved_data["terms"].toInt();
    const auto one_number = ctx->saved_data["one_number"].toIntVector();
    const auto saved = ctx->get_saved_variables();
    variable_list gradients(terms + saved.size() + 2);
    Tensor sum;
    for (int64_t t = 0; t < terms; ++t) {
      if (!ctx->needs_input_grad(t)) {
        continue;
      }
      if (one_number[t] == 0) {
        gradients[t] = dy;
        continue;
      }
      if (!sum.defined()) {
        double total = 0;
        for (int64_t i = 0; i < batch; ++i) total += d[i];
        sum = at::detail::empty_cpu({}, at::TensorOptions(at::kFloat));
        *sum.mutable_data_ptr<float>() = static_cast<float>(total);
      }
      gradients[t] = sum;
    }
    if (!saved.empty() && ctx->needs_input_grad(terms)) {
      const float* z = saved[0].const_data_ptr<float>();
      const int64_t features = saved[0].size(1);
      gradients[terms] = at::detail::empty_cpu(saved[0].sizes(), at::TensorOptions(at::kFloat));
      float* dz = gradients[terms].mutable_data_ptr<float>();
      for (int64_t i = 0; i < batch; ++i) {
        for (int64_t j = 0; j < features; ++j) dz[i * features + j] = -d[i] * z[i * features + j];
      }
    }
    return gradients;
  }
};

}  // namespace

// The sum of `count` terms and, unless `noise` is null, of its density under the standard normal distribution.
extern "C" char* dingo_log_density(const Tensor* const* terms, int64_t count, const Tensor* noise, int64_t batch,
                                   Tensor** output) {
  return dingo::guard([&] {
    variable_list tensors;
    for (int64_t i = 0; i < count; ++i) {
      TORCH_CHECK(is_one_number(*terms[i]) || (terms[i]->dim() == 1 && terms[i]->size(0) == batch),
                  "log determinants of ", batch, " samples are needed, found shape ", terms[i]->sizes());
      tensors.push_back(*terms[i]);
    }
    if (noise != nullptr) {
      TORCH_CHECK(noise->dim() == 2 && noise->size(0) == batch, "noise of ", batch, " samples is needed, found shape ",
                  noise->sizes());
      tensors.push_back(*noise);
    }
    for (const Tensor& tensor : tensors) {
      TORCH_CHECK(tensor.scalar_type() == at::kFloat && tensor.device().is_cpu(),
                  "single precision on the host is needed, found ", tensor.scalar_type(), " on ", tensor.device());
    }
    *output = new Tensor(LogDensity::apply(at::TensorList(tensors), noise != nullptr, batch));
  });
}
