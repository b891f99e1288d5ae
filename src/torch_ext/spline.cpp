// Rational-quadratic splines for some features of a batch, as one autograd function: from the unconstrained numbers of a
// network to values and log |det J|. The arithmetic is in kernels/spline.h.

#include <ATen/EmptyTensor.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "feature_list.h"
#include "guard.h"
#include "kernels/spline_rows.h"

namespace {

using at::Tensor;
using dingo::packed_rows;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// What is not differentiated.
struct Splines final : public torch::CustomClassHolder {
  dingo::SplineShape shape;
  bool inverse;
  int level;
  std::vector<int64_t> features;

  template <typename T, typename P>
  dingo::SplineBatch<T, P> batch(const Tensor& inputs, const Tensor& parameters) const {
    return {shape,
            inverse,
            features.data(),
            static_cast<int64_t>(features.size()),
            inputs.size(0),
            inputs.size(1),
            inputs.const_data_ptr<T>(),
            inputs.stride(0),
            parameters.const_data_ptr<P>(),
            parameters.stride(0)};
  }
};

// Calls body(T, P) with a value of the inputs' and one of the parameters' type, for those that there are kernels for.
template <typename Body>
void with_types(const Tensor& inputs, const Tensor& parameters, Body&& body) {
  if (inputs.scalar_type() == at::kDouble) {
    body(double(), double());
  } else if (parameters.scalar_type() == at::kBFloat16) {
    body(float(), at::BFloat16());
  } else {
    body(float(), float());
  }
}

class SplineFunction final : public torch::autograd::Function<SplineFunction> {
 public:
  static variable_list forward(AutogradContext* ctx, const Tensor& input, const Tensor& parameter,
                               const c10::intrusive_ptr<Splines>& splines) {
    const Tensor inputs = packed_rows(input), parameters = packed_rows(parameter);
    const Tensor outputs = at::detail::empty_cpu(inputs.sizes(), inputs.options());
    const Tensor logabsdet = at::detail::empty_cpu({inputs.size(0)}, inputs.options());
    with_types(inputs, parameters, [&](auto t, auto p) {
      using T = decltype(t);
      using P = decltype(p);
      const dingo::SplineForward<T, P> job{splines->batch<T, P>(inputs, parameters), outputs.mutable_data_ptr<T>(),
                                           logabsdet.mutable_data_ptr<T>()};
      dingo::run(job, splines->level);
    });
    ctx->set_materialize_grads(false);
    ctx->save_for_backward({inputs, parameters});
    ctx->saved_data["splines"] = c10::IValue::make_capsule(splines);
    return {outputs, logabsdet};
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grad_outputs) {
    TORCH_CHECK(!at::GradMode::is_enabled(), "second derivatives of splines are not implemented");
    variable_list gradients(3);
    const auto saved = ctx->get_saved_variables();
    const Tensor &inputs = saved[0], &parameters = saved[1];
    const auto capsule = ctx->saved_data["splines"].toCapsule();
    const auto& splines = static_cast<const Splines&>(*capsule);
    const Tensor values = grad_outputs[0].defined() ? packed_rows(grad_outputs[0]) : Tensor();
    const Tensor& logabsdet = grad_outputs[1];
    if (ctx->needs_input_grad(0)) {
      gradients[0] = at::detail::empty_cpu(inputs.sizes(), inputs.options());
    }
    if (ctx->needs_input_grad(1)) {
      gradients[1] = at::detail::empty_cpu(parameters.sizes(), parameters.options());
    }
    with_types(inputs, parameters, [&](auto t, auto p) {
      using T = decltype(t);
      using P = decltype(p);
      dingo::SplineBackward<T, P> job{splines.batch<T, P>(inputs, parameters), nullptr, 0, nullptr, 0, nullptr, nullptr};
      if (values.defined()) {
        job.grad_outputs = values.const_data_ptr<T>();
        job.grad_outputs_stride = values.stride(0);
      }
      if (logabsdet.defined()) {
        job.grad_logabsdet = logabsdet.const_data_ptr<T>();
        job.grad_logabsdet_stride = logabsdet.stride(0);
      }
      if (gradients[0].defined()) job.grad_inputs = gradients[0].mutable_data_ptr<T>();
      if (gradients[1].defined()) job.grad_parameters = gradients[1].mutable_data_ptr<P>();
      dingo::run(job, splines.level);
    });
    return gradients;
  }
};

void check_arguments(const Tensor& inputs, const Tensor& parameters, const Splines& splines) {
  TORCH_CHECK(inputs.dim() == 2 && inputs.is_cpu() && parameters.is_cpu(), "splines take [batch, features] in host memory");
  const bool known = inputs.scalar_type() == at::kFloat || inputs.scalar_type() == at::kDouble;
  TORCH_CHECK(known, "splines are computed for float and double, found ", inputs.scalar_type());
  const int64_t numbers = static_cast<int64_t>(splines.features.size()) * splines.shape.parameters();
  TORCH_CHECK(splines.shape.bins > 0 && parameters.dim() == 2 && parameters.size(0) == inputs.size(0) &&
                  parameters.size(1) == numbers,
              "the parameters of ", splines.features.size(), " splines with ", splines.shape.bins, " bins for ",
              inputs.size(0), " samples have shape [", inputs.size(0), ", ", numbers, "], found ", parameters.sizes());
  auto sorted = splines.features;
  std::sort(sorted.begin(), sorted.end());
  TORCH_CHECK(std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end(), "a feature has two splines");
}

}  // namespace

extern "C" {

// inputs [batch, width], features [n], parameters [batch, n * (3 * bins - 1)]; gives outputs [batch, width] and [batch].
char* dingo_spline(const Tensor* inputs, const Tensor* features, const Tensor* parameters, const dingo::SplineShape* shape,
                   bool inverse, int level, Tensor** outputs, Tensor** logabsdet) {
  return dingo::guard([&] {
    auto splines = c10::make_intrusive<Splines>();
    splines->shape = *shape;
    splines->inverse = inverse;
    splines->level = level;
    splines->features = dingo::feature_list(*features, inputs->dim() == 2 ? inputs->size(1) : 0);
    check_arguments(*inputs, *parameters, *splines);
    // In mixed precision a network gives the parameters in a short type.
    const bool as_they_are = parameters->scalar_type() == inputs->scalar_type() ||
                             (parameters->scalar_type() == at::kBFloat16 && inputs->scalar_type() == at::kFloat);
    const Tensor numbers = as_they_are ? *parameters : parameters->to(inputs->scalar_type());
    const auto results = SplineFunction::apply(*inputs, numbers, splines);
    *outputs = new Tensor(results[0]);
    *logabsdet = new Tensor(results[1]);
  });
}

}  // extern "C"
