// Batch normalization over ranks by libtorch's kernels for GPUs, as torch.nn.SyncBatchNorm puts them together. No call waits
// for the GPU, except where a rank has at most one value per channel.
//
// Forward: each rank finds mean and inverse standard deviation of its rows; those and the counts are gathered and combined.
// Backward: the sums of dy and of dy * (x - mean) over all rows are what ranks need of one another.

#include "device_batch_norm.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <tuple>

#include "guard.h"

namespace {

using at::Tensor;
using dingo::BatchNormLayer;
using dingo::RankStatistics;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using Optional = std::optional<Tensor>;

// Stands for the count of a rank without rows: the kernel that combines the ranks divides by the rows so far.
constexpr double kNoRows = 1e-30;

// libtorch's kernels for GPUs. Statistics are in single precision at least.
struct DeviceKernels {
  static std::tuple<Tensor, Tensor> stats(const Tensor& x, double eps) { return at::batch_norm_stats(x, eps); }

  // mean, invstd [ranks, channels], counts [ranks]; running statistics move by `momentum`.
  static std::tuple<Tensor, Tensor> gather_stats(const Tensor& x, const Tensor& mean, const Tensor& invstd,
                                                 const Optional& running_mean, const Optional& running_var,
                                                 double momentum, double eps, const Tensor& counts) {
    return at::batch_norm_gather_stats_with_counts(x, mean, invstd, running_mean, running_var, momentum, eps, counts);
  }

  static Tensor elemt(const Tensor& x, const Optional& weight, const Optional& bias, const Tensor& mean,
                      const Tensor& invstd, double eps) {
    return at::batch_norm_elemt(x, weight, bias, mean, invstd, eps);
  }

  // sum of dy, sum of dy * (x - mean), gradients of weight and bias.
  static std::tuple<Tensor, Tensor, Tensor, Tensor> backward_reduce(const Tensor& dy, const Tensor& x,
                                                                    const Tensor& mean, const Tensor& invstd,
                                                                    const Optional& weight) {
    return at::batch_norm_backward_reduce(dy, x, mean, invstd, weight, true, weight.has_value(), weight.has_value());
  }

  // `counts` are whole numbers, one a rank.
  static Tensor backward_elemt(const Tensor& dy, const Tensor& x, const Tensor& mean, const Tensor& invstd,
                               const Optional& weight, const Tensor& sum_dy, const Tensor& sum_dy_xmu,
                               const Tensor& counts) {
    return at::batch_norm_backward_elemt(dy, x, mean, invstd, weight, sum_dy, sum_dy_xmu, counts);
  }
};

// What those kernels compute, by plain operations on [batch, channels]: lets the way they are put together be tested on the
// host. Loops and formulas are the kernels' own.
struct PlainKernels {
  static std::tuple<Tensor, Tensor> stats(const Tensor& x, double eps) {
    const Tensor mean = x.mean(0);
    return {mean, ((x - mean).square().mean(0) + eps).rsqrt()};
  }

  static std::tuple<Tensor, Tensor> gather_stats(const Tensor&, const Tensor& means, const Tensor& invstds,
                                                 const Optional& running_mean, const Optional& running_var,
                                                 double momentum, double eps, const Tensor& counts) {
    Tensor mean = at::zeros_like(means[0]), m2 = at::zeros_like(mean), rows = at::zeros_like(counts[0]);
    for (int64_t rank = 0; rank < counts.size(0); ++rank) {
      const Tensor count = counts[rank], share = 1.0 / (rows + count);
      const Tensor delta = mean - means[rank];
      m2 = m2 + (invstds[rank].pow(-2) - eps) * count + delta * delta * rows * count * share;
      mean = rows * share * mean + count * share * means[rank];
      rows = rows + count;
    }
    if (running_mean) {
      running_mean->mul_(1.0 - momentum).add_(mean, momentum);
      running_var->mul_(1.0 - momentum).add_(m2 / (rows - 1.0), momentum);
    }
    return {mean, (m2 / rows + eps).rsqrt()};
  }

  static Tensor elemt(const Tensor& x, const Optional& weight, const Optional& bias, const Tensor& mean,
                      const Tensor& invstd, double) {
    const Tensor y = (x - mean) * invstd;
    return weight ? y * *weight + *bias : y;
  }

  static std::tuple<Tensor, Tensor, Tensor, Tensor> backward_reduce(const Tensor& dy, const Tensor& x,
                                                                    const Tensor& mean, const Tensor& invstd,
                                                                    const Optional&) {
    const Tensor sum_dy = dy.sum(0), sum_dy_xmu = (dy * (x - mean)).sum(0);
    return {sum_dy, sum_dy_xmu, sum_dy_xmu * invstd, sum_dy};
  }

  static Tensor backward_elemt(const Tensor& dy, const Tensor& x, const Tensor& mean, const Tensor& invstd,
                               const Optional& weight, const Tensor& sum_dy, const Tensor& sum_dy_xmu,
                               const Tensor& counts) {
    const Tensor rows = counts.sum();
    const Tensor centered = dy - sum_dy / rows - (x - mean) * invstd.square() * sum_dy_xmu / rows;
    return centered * (weight ? invstd * *weight : invstd);
  }
};

// Half precision has statistics in single.
at::ScalarType statistics_type(const Tensor& x) {
  return x.scalar_type() == at::kHalf || x.scalar_type() == at::kBFloat16 ? at::kFloat : x.scalar_type();
}

// `apply` differentiates the tensors among its own arguments; the layer it passes on as it is.
template <typename Kernels>
class SyncBatchNorm final : public torch::autograd::Function<SyncBatchNorm<Kernels>> {
 public:
  static Tensor forward(AutogradContext* ctx, const Tensor& given, const Optional& weight, const Optional& bias,
                        const BatchNormLayer& layer) {
    const Tensor x = given.contiguous();
    const int64_t channels = x.size(1), rows = x.numel() / channels;
    const auto options = x.options().dtype(statistics_type(x));

    Tensor own = at::zeros({2 * channels + 1}, options);
    if (rows > 0) {
      const auto [mean, invstd] = Kernels::stats(x, layer.eps);
      own = at::cat({mean, invstd, at::full({1}, static_cast<double>(rows), options)});
    } else {
      // Any finite one will do.
      own.narrow(0, channels, channels).fill_(1.0);
    }
    const Tensor gathered = layer.ranks->all_gather(own);
    const Tensor counts = gathered.select(1, 2 * channels);
    if (rows <= 1) {
      const double all = counts.sum().template item<double>();
      TORCH_CHECK(all > 1, "batch normalization in training needs more than one value per channel over all ranks, found ",
                  all);
    }
    const Optional running_mean = layer.running_mean.defined() ? Optional(layer.running_mean) : std::nullopt;
    const Optional running_var = layer.running_var.defined() ? Optional(layer.running_var) : std::nullopt;
    const auto [mean, invstd] = Kernels::gather_stats(
        x, gathered.narrow(1, 0, channels).contiguous(), gathered.narrow(1, channels, channels).contiguous(),
        running_mean, running_var, layer.momentum, layer.eps, counts.clamp_min(kNoRows).contiguous());

    ctx->save_for_backward({x, weight.value_or(Tensor()), mean, invstd, counts.to(at::kInt).contiguous()});
    ctx->saved_data["has_bias"] = bias.has_value();
    ctx->saved_data["ranks"] = c10::IValue::make_capsule(layer.ranks);
    return rows > 0 ? Kernels::elemt(x, weight, bias, mean, invstd, layer.eps) : at::empty_like(x);
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grad_outputs) {
    const auto saved = ctx->get_saved_variables();
    const Tensor &x = saved[0], &mean = saved[2], &invstd = saved[3], &counts = saved[4];
    const Optional weight = saved[1].defined() ? Optional(saved[1]) : std::nullopt;
    const Tensor dy = grad_outputs[0].contiguous();
    const bool has_rows = x.numel() > 0;

    // The local sums are the gradients of weight and bias; whoever sums parameters' gradients over ranks completes them.
    Tensor sum_dy = at::zeros_like(mean), sum_dy_xmu = at::zeros_like(mean), of_weight, of_bias;
    if (has_rows) {
      std::tie(sum_dy, sum_dy_xmu, of_weight, of_bias) = Kernels::backward_reduce(dy, x, mean, invstd, weight);
    }
    variable_list gradients(4);
    if (weight) {
      gradients[1] = has_rows ? of_weight : at::zeros_like(*weight);
    }
    if (ctx->saved_data["has_bias"].toBool()) {
      gradients[2] = has_rows ? of_bias : at::zeros_like(weight ? *weight : mean);
    }

    // All ranks agree on this: it says whether a layer below is trained.
    if (ctx->needs_input_grad(0)) {
      const Tensor sums = at::stack({sum_dy, sum_dy_xmu});
      const auto capsule = ctx->saved_data["ranks"].toCapsule();
      static_cast<const RankStatistics&>(*capsule).all_reduce_sum(sums);
      gradients[0] = has_rows ? Kernels::backward_elemt(dy, x, mean, invstd, weight, sums[0], sums[1], counts)
                              : at::empty_like(x);
    }
    return gradients;
  }
};

}  // namespace

at::Tensor dingo::device_sync_batch_norm(const Tensor& input, const BatchNormLayer& layer) {
  TORCH_CHECK(layer.weight.has_value() == layer.bias.has_value(),
              "batch normalization on a GPU takes weight and bias, or neither");
  if (input.is_cuda()) {
    return SyncBatchNorm<DeviceKernels>::apply(input, layer.weight, layer.bias, layer);
  }
  return SyncBatchNorm<PlainKernels>::apply(input, layer.weight, layer.bias, layer);
}
