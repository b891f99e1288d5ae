// Batch normalization with statistics over the batches of all ranks, as one autograd function. The ranks are reached through
// callbacks, so nothing here knows how they talk.
//
// Forward: each rank finds count, mean and sum of squared deviations (M2) of its own rows in two passes; the triples are
// gathered and combined (Chan, Golub, LeVeque 1979), in the same order everywhere, so that all ranks get the same bits.
// Backward: with xmu = x - mean, the two sums of dy and of dy * xmu over all rows are what ranks need of one another.

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <memory>
#include <string>
#include <vector>

#include "guard.h"

namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// The Rust side of the ranks; a callback returns null or a malloc'ed message.
struct Ranks {
  void* context;
  char* (*all_gather)(void* context, const Tensor* local, Tensor** gathered);
  char* (*all_reduce_sum)(void* context, const Tensor* values);
  void (*drop)(void* context);
};

// Owns the Rust side for as long as a graph may still run its backward.
class SharedRanks final : public torch::CustomClassHolder {
 public:
  explicit SharedRanks(Ranks ranks) : ranks_(ranks) {}
  SharedRanks(const SharedRanks&) = delete;
  SharedRanks& operator=(const SharedRanks&) = delete;
  ~SharedRanks() override { ranks_.drop(ranks_.context); }

  // [k] on each rank to [ranks, k] on all.
  Tensor all_gather(const Tensor& local) const {
    Tensor* gathered = nullptr;
    check(ranks_.all_gather(ranks_.context, &local, &gathered));
    std::unique_ptr<Tensor> owner(gathered);
    return *owner;
  }

  void all_reduce_sum(const Tensor& values) const { check(ranks_.all_reduce_sum(ranks_.context, &values)); }

 private:
  static void check(char* message) {
    if (message == nullptr) {
      return;
    }
    const std::string text(message);
    free(message);
    TORCH_CHECK(false, text);
  }

  Ranks ranks_;
};

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
  TORCH_CHECK(count > 1, "batch normalization in training needs more than one value per channel over all ranks, found ", count);
  const Tensor mean = (means * counts).sum(0) / count;
  const Tensor m2 = (m2s + (means - mean).square() * counts).sum(0);
  return {count, mean, m2};
}

// What `apply` passes on as it is; tensors among its own arguments are what it differentiates.
struct Layer {
  Tensor running_mean, running_var;  // [channels], may be undefined
  double momentum, eps;
  c10::intrusive_ptr<SharedRanks> ranks;
};

void update(const Tensor& running, const Tensor& value, double momentum) {
  if (running.defined()) {
    running.lerp_(value.to(running.scalar_type()), momentum);
  }
}

class SyncBatchNorm final : public torch::autograd::Function<SyncBatchNorm> {
 public:
  static Tensor forward(AutogradContext* ctx, const Tensor& input, const std::optional<Tensor>& weight,
                        const std::optional<Tensor>& bias, const Layer& layer) {
    const Tensor x = at_least_float(input);
    const int64_t channels = x.size(1);
    const int64_t local_count = x.numel() / channels;
    const auto dims = reduced_dims(x);

    // A rank without rows takes part with zeros.
    const Tensor local_mean = local_count > 0 ? x.mean(dims) : at::zeros({channels}, x.options());
    const Tensor centered = x - per_channel(local_mean, x);
    const Tensor local_m2 = centered.square().sum(dims);
    const Tensor local_triple = at::cat({at::full({1}, static_cast<double>(local_count), x.options()), local_mean, local_m2});
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

    // The local sums are the gradients of weight and bias; whoever sums parameters' gradients over ranks completes them.
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
      static_cast<const SharedRanks&>(*capsule).all_reduce_sum(sums);
      const Tensor means = sums / ctx->saved_data["count"].toDouble();
      const Tensor slope = means[1] * invstd.square();
      const Tensor offset = -at::addcmul(means[0], shift, slope) * scale;
      const Tensor dx = at::addcmul(per_channel(offset, dy), dy, per_channel(scale, dy));
      gradients[0] = dx.addcmul_(centered, per_channel(-slope * scale, dy)).to(grad_outputs[0].scalar_type());
    }
    return gradients;
  }
};

}  // namespace

extern "C" {

// Takes `ranks.context` over in every case. weight, bias and the running statistics may be null.
char* dingo_sync_batch_norm(const Tensor* input, const Tensor* weight, const Tensor* bias, const Tensor* running_mean,
                            const Tensor* running_var, double momentum, double eps, Ranks ranks, Tensor** output) {
  return dingo::guard([&] {
    const Layer layer{dingo::optional_tensor(running_mean), dingo::optional_tensor(running_var), momentum, eps,
                      c10::make_intrusive<SharedRanks>(ranks)};
    TORCH_CHECK(input->dim() >= 2, "batch normalization needs [batch, channels, ...], found ", input->sizes());
    TORCH_CHECK(input->size(1) > 0, "batch normalization needs channels, found ", input->sizes());
    for (const Tensor* values : {weight, bias, running_mean, running_var}) {
      TORCH_CHECK(values == nullptr || (values->dim() == 1 && values->size(0) == input->size(1)), "batch normalization of ",
                  input->sizes(), " needs [", input->size(1), "] per channel, found ", values == nullptr ? at::IntArrayRef{} : values->sizes());
    }
    const auto optional = [](const Tensor* tensor) { return tensor == nullptr ? std::nullopt : std::make_optional(*tensor); };
    *output = new Tensor(SyncBatchNorm::apply(*input, optional(weight), optional(bias), layer));
  });
}

}  // extern "C"
