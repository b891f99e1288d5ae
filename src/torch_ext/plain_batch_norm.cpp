// Batch normalization by libtorch's operations, for what the kernels of batch_norm.cpp are not made for. Over ranks it is
// one autograd function:
//
// Forward: each rank finds count, mean and sum of squared deviations (M2) of its own rows in two passes; the triples
// are gathered and combined (Chan, Golub, LeVeque 1979), in the same order everywhere, so that all ranks get the same
// bits. Backward: with xmu = x - mean, the two sums of dy and of dy * xmu over all rows are what ranks need of one
// another.

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <vector>

#include "batch_norm.h"
#include "device_batch_norm.h"

namespace {

using at::Tensor;
using dingo::BatchNormLayer;
using dingo::RankStatistics;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// All dimensions but the channels', which is 1.
std::vector<int64_t> reduced_dims(const Tensor& x) {
  std::vector<int64_t> dims{0};
  for (int64_t dim = 2; dim < x.dim(); ++dim) {
    dims.push_back(dim);
  }
  return dims;
}

// [channels] shaped to broadcast against x.
Tensor per_channel(const Tensor& values, const Tensor& x) {
  std::vector<int64_t> shape(x.dim(), 1);
  shape[1] = values.size(0);
  return values.view(shape);
}

// Half precision is normalized in single, as PyTorch does.
Tensor at_least_float(const Tensor& x) {
  return x.scalar_type() == at::kHalf || x.scalar_type() == at::kBFloat16 ? x.to(at::kFloat) : x;
}

// The moments over all ranks, in double.
struct Moments {
  double count;
  Tensor mean;  // [channels]
  Tensor m2;    // [channels]
};

Moments combine(const Tensor& gathered, int64_t channels) {
  const Tensor triples = gathered.to(at::kDouble);
  const Tensor counts = triples.narrow(1, 0, 1);
  const Tensor means = triples.narrow(1, 1, channels);
  const Tensor m2s = triples.narrow(1, 1 + channels, channels);
  const double count = counts.sum().item<double>();
  TORCH_CHECK(count > 1, "batch normalization in training needs more than one value per channel over all ranks, found ",
              count);
  const Tensor mean = (means * counts).sum(0) / count;
  const Tensor m2 = (m2s + (means - mean).square() * counts).sum(0);
  return {count, mean, m2};
}

void update(const Tensor& running, const Tensor& value, double momentum) {
  if (running.defined()) {
    running.lerp_(value.to(running.scalar_type()), momentum);
  }
}

// `apply` differentiates the tensors among its own arguments; the layer it passes on as it is.
class SyncBatchNorm final : public torch::autograd::Function<SyncBatchNorm> {
 public:
  static Tensor forward(AutogradContext* ctx, const Tensor& input, const std::optional<Tensor>& weight,
                        const std::optional<Tensor>& bias, const BatchNormLayer& layer) {
    const Tensor x = at_least_float(input);
    const int64_t channels = x.size(1);
    const int64_t local_count = x.numel() / channels;
    const auto dims = reduced_dims(x);

    // A rank without rows takes part with zeros.
    const Tensor local_mean = local_count > 0 ? x.mean(dims) : at::zeros({channels}, x.options());
    const Tensor centered = x - per_channel(local_mean, x);
    const Tensor local_m2 = centered.square().sum(dims);
    const Tensor count = at::full({1}, static_cast<double>(local_count), x.options());
    const Tensor local_triple = at::cat({count, local_mean, local_m2});
    const Moments moments = combine(layer.ranks->all_gather(local_triple), channels);

    const Tensor invstd = (moments.m2 / moments.count + layer.eps).rsqrt().to(x.scalar_type());
    update(layer.running_mean, moments.mean, layer.momentum);
    update(layer.running_var, moments.m2 / (moments.count - 1), layer.momentum);

    // x - mean = centered + shift, without the cancellation of x * scale - mean * scale.
    const Tensor shift = (local_mean.to(at::kDouble) - moments.mean).to(x.scalar_type());
    const Tensor scale = weight ? invstd * *weight : invstd;
    const Tensor offset = bias ? at::addcmul(*bias, shift, scale) : shift * scale;
    const Tensor y = at::addcmul(per_channel(offset, x), centered, per_channel(scale, x));

    ctx->save_for_backward({centered, shift, invstd, scale});
    ctx->saved_data["count"] = moments.count;
    ctx->saved_data["has_weight"] = weight.has_value();
    ctx->saved_data["has_bias"] = bias.has_value();
    ctx->saved_data["ranks"] = c10::IValue::make_capsule(layer.ranks);
    return y.to(input.scalar_type());
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grad_outputs) {
    const auto saved = ctx->get_saved_variables();
    const Tensor &centered = saved[0], &shift = saved[1], &invstd = saved[2], &scale = saved[3];
    const Tensor dy = at_least_float(grad_outputs[0]).to(centered.scalar_type());
    const auto dims = reduced_dims(dy);

    // The local sums are the gradients of weight and bias; whoever sums parameters' gradients over ranks completes
    // them.
    const Tensor sum_dy = dy.sum(dims);
    const Tensor sum_dy_xmu = at::addcmul((dy * centered).sum(dims), shift, sum_dy);
    variable_list gradients(4);
    if (ctx->saved_data["has_weight"].toBool()) {
      gradients[1] = sum_dy_xmu * invstd;
    }
    if (ctx->saved_data["has_bias"].toBool()) {
      gradients[2] = sum_dy;
    }

    // All ranks agree on this: it says whether a layer below is trained.
    if (ctx->needs_input_grad(0)) {
      const Tensor sums = at::stack({sum_dy, sum_dy_xmu});
      const auto capsule = ctx->saved_data["ranks"].toCapsule();
      static_cast<const RankStatistics&>(*capsule).all_reduce_sum(sums);
      const Tensor means = sums / ctx->saved_data["count"].toDouble();
      const Tensor slope = means[1] * invstd.square();
      const Tensor offset = -at::addcmul(means[0], shift, slope) * scale;
      const Tensor dx = at::addcmul(per_channel(offset, dy), dy, per_channel(scale, dy));
      gradients[0] = dx.addcmul_(centered, per_channel(-slope * scale, dy)).to(grad_outputs[0].scalar_type());
    }
    return gradients;
  }
};

Tensor activated(const Tensor& x, dingo::Activation activation) {
  switch (activation) {
    case dingo::Activation::Elu:
      return at::elu(x);
    case dingo::Activation::Relu:
      return at::relu(x);
    case dingo::Activation::LeakyRelu:
      return at::leaky_relu(x, dingo::kLeakyReluSlope);
    case dingo::Activation::Gelu:
      return at::gelu(x);
    default:
      return x;
  }
}

}  // namespace

at::Tensor dingo::plain_batch_norm(const Tensor& input, const BatchNormLayer& layer) {
  const bool over_ranks = layer.training && layer.ranks;
  const auto over_all = [&] {
    return input.is_cuda() ? dingo::device_sync_batch_norm(input, layer)
                           : SyncBatchNorm::apply(input, layer.weight, layer.bias, layer);
  };
  const Tensor y = over_ranks ? over_all()
                              : at::batch_norm(input, layer.weight, layer.bias, layer.running_mean, layer.running_var,
                                               layer.training, layer.momentum, layer.eps, true);
  if (layer.training && layer.num_batches_tracked.defined()) {
    layer.num_batches_tracked.add_(1);
  }
  return activated(y, layer.activation);
}
