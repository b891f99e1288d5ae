// Batch normalization and the activation after it as one autograd function, for [batch, features] on the host; what else
// there is goes to plain_batch_norm.cpp. The arithmetic is that of kernels/batch_norm.h.
//
// Between ranks that share the batch, forward gathers count, mean and sum of squared deviations (M2) of every rank's rows
// and combines them in the order of ranks, so that all find the same bits; backward sums two numbers per feature.

#include "batch_norm.h"
#include "device_batch_norm.h"

#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "batch_statistics.h"
#include "guard.h"
#include "host_tensors.h"
#include "kernels/batch_norm.h"

namespace {

using at::Tensor;
using dingo::Activation;
using dingo::BatchNormLayer;
using dingo::Coefficients;
using dingo::data;
using dingo::empty_host;
using dingo::mutable_data;
using dingo::Moments;
using dingo::Number;
using dingo::RankStatistics;
using dingo::Tile;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Columns that stay with one thread: two cache lines of floats.
constexpr int64_t kThreadColumns = 32;

// Calls `body(tile)` for all columns, on several threads where there is enough to do.
template <typename Body>
void for_tiles(int64_t rows, int64_t features, const Body& body) {
  const int64_t pieces = (features + kThreadColumns - 1) / kThreadColumns;
  dingo::share_out(pieces, rows * kThreadColumns, [&](int64_t from, int64_t to) {
    const int64_t end = std::min(to * kThreadColumns, features);
    for (int64_t begin = from * kThreadColumns; begin < end; begin += dingo::kTileColumns) {
      body(Tile{rows, features, begin, std::min(begin + dingo::kTileColumns, end)});
    }
  });
}

// What backward needs beyond tensors.
template <typename N>
struct Kept final : torch::CustomClassHolder {
  Kept(int64_t features, const BatchNormLayer& layer)
      : coefficients(features),
        activation(layer.activation),
        level(layer.level),
        training(layer.training),
        has_weight(layer.weight.has_value()),
        has_bias(layer.bias.has_value()),
        ranks(layer.training ? layer.ranks : nullptr) {}

  Coefficients<N> coefficients;
  Activation activation;
  int level;
  bool training, has_weight, has_bias;
  c10::intrusive_ptr<RankStatistics> ranks;
  double count = 0;  // rows of all ranks
};

void bump_version(const Tensor& tensor) {
  if (tensor.defined()) {
    tensor.unsafeGetTensorImpl()->bump_version();
  }
}

template <typename Stored>
void normalize(const Tensor& x, const BatchNormLayer& layer, Kept<Number<Stored>>& kept, const Tensor& y) {
  using N = Number<Stored>;
  const auto& loops = dingo::batch_norm_loops<Stored>(layer.level);
  const int64_t rows = x.size(0), features = x.size(1);
  const N* weight = layer.weight ? layer.weight->const_data_ptr<N>() : nullptr;
  const N* bias = layer.bias ? layer.bias->const_data_ptr<N>() : nullptr;
  auto& coefficients = kept.coefficients;

  if (!layer.training) {
    const N* mean = layer.running_mean.const_data_ptr<N>();
    const N* variance = layer.running_var.const_data_ptr<N>();
    for_tiles(rows, features, [&](const Tile& tile) {
      for (int64_t j = tile.begin; j < tile.end; ++j) {
        coefficients.set(j, mean[j], variance[j], layer.eps, weight, bias);
      }
      loops.normalize(data<Stored>(x), tile, coefficients.affine(), layer.activation, mutable_data<Stored>(y));
    });
    return;
  }

  const Moments moments(features);
  moments.count() = static_cast<double>(rows);
  const auto find_moments = [&](const Tile& tile) {
    loops.moments(data<Stored>(x), tile, moments.mean(), moments.m2());
  };
  const auto apply_moments = [&](const Tile& tile) {
    for (int64_t j = tile.begin; j < tile.end; ++j) {
      coefficients.set(j, moments.mean()[j], moments.m2()[j] / moments.count(), layer.eps, weight, bias);
    }
    dingo::update_running<N>(layer, moments, tile);
    loops.normalize(data<Stored>(x), tile, coefficients.affine(), layer.activation, mutable_data<Stored>(y));
  };
  if (layer.ranks) {
    for_tiles(rows, features, find_moments);
    combine_ranks(*layer.ranks, moments);
  }
  TORCH_CHECK(moments.count() > 1,
              "batch normalization in training needs more than one value per channel over all ranks, found ",
              moments.count());
  for_tiles(rows, features, [&](const Tile& tile) {
    if (!layer.ranks) {
      find_moments(tile);
    }
    apply_moments(tile);
  });
  kept.count = moments.count();
  bump_version(layer.running_mean);
  bump_version(layer.running_var);
  if (layer.num_batches_tracked.defined()) {
    *layer.num_batches_tracked.mutable_data_ptr<int64_t>() += 1;
    bump_version(layer.num_batches_tracked);
  }
}

// Whether the kernels find slopes from the output.
template <typename Stored>
bool keeps_output(Activation activation) {
  switch (activation) {
    case Activation::Elu:
      return dingo::slope_from_output<Activation::Elu, Stored>();
    case Activation::Relu:
    case Activation::LeakyRelu:
      return true;
    default:
      return false;
  }
}

// `apply` differentiates the tensors among its own arguments; the layer it passes on as it is. The outputs are the
// normalized values and, with_skip, the input once more: what flows back to it is then summed in the same pass.
template <typename Stored>
class BatchNorm final : public torch::autograd::Function<BatchNorm<Stored>> {
  using N = Number<Stored>;

 public:
  static variable_list forward(AutogradContext* ctx, const Tensor& input, const std::optional<Tensor>& weight,
                               const std::optional<Tensor>& bias, const BatchNormLayer& layer, bool with_skip) {
    const Tensor x = input.contiguous();
    const Tensor y = empty_host(x.sizes(), x.scalar_type());
    auto kept = c10::make_intrusive<Kept<N>>(x.size(1), layer);
    normalize<Stored>(x, layer, *kept, y);

    ctx->save_for_backward({x, keeps_output<Stored>(layer.activation) ? y : x});
    ctx->saved_data["kept"] = c10::IValue::make_capsule(kept);
    ctx->set_materialize_grads(false);
    if (!with_skip) {
      return {y};
    }
    const Tensor skip(input.variable_data());
    if (!input.requires_grad()) {
      ctx->mark_non_differentiable({skip});
    }
    return {y, skip};
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grad_outputs) {
    const auto capsule = ctx->saved_data["kept"].toCapsule();
    const Kept<N>& kept = static_cast<const Kept<N>&>(*capsule);
    const Tensor skip = grad_outputs.size() > 1 && grad_outputs[1].defined() ? grad_outputs[1].contiguous() : Tensor();
    variable_list gradients(5);
    if (!grad_outputs[0].defined()) {
      gradients[0] = skip;
      return gradients;
    }

    const auto saved = ctx->get_saved_variables();
    const Tensor dy = grad_outputs[0].contiguous();
    const Pass pass{{data<Stored>(dy), data<Stored>(saved[0]), data<Stored>(saved[1])}, dy.size(0), dy.size(1), kept};
    const bool for_weight = kept.has_weight && ctx->needs_input_grad(1);
    const bool for_bias = kept.has_bias && ctx->needs_input_grad(kept.has_weight ? 2 : 1);
    // All ranks agree on this: it says whether a layer below is trained.
    const bool for_input = ctx->needs_input_grad(0);
    const Tensor dx = for_input ? empty_host(dy.sizes(), dy.scalar_type()) : Tensor();
    const Tensor sums = empty_host({2, pass.features}, at::kDouble);
    const auto write_dx = [&](const Tile& tile) { pass.input_gradient(tile, sums, skip, dx); };

    // Without ranks the second pass over a tile finds it in the cache.
    const bool sums_wanted = for_weight || for_bias || (for_input && kept.training);
    const bool at_once = for_input && !kept.ranks;
    for_tiles(pass.rows, pass.features, [&](const Tile& tile) {
      if (sums_wanted) {
        pass.sums(tile, sums);
      }
      if (at_once) {
        write_dx(tile);
      }
    });
    // The local sums are the gradients of weight and bias; whoever sums parameters' gradients over ranks completes them.
    gradients[1] = for_weight ? pass.weight_gradient(sums) : Tensor();
    gradients[2] = for_bias ? pass.bias_gradient(sums) : Tensor();
    if (for_input && kept.ranks) {
      kept.ranks->all_reduce_sum(sums);
      for_tiles(pass.rows, pass.features, write_dx);
    }
    gradients[0] = dx;
    return gradients;
  }

 private:
  // One backward pass; sums are [2, features]: of dz and of dz * (x - mean).
  struct Pass {
    dingo::Saved<Stored> saved;
    int64_t rows, features;
    const Kept<N>& kept;

    void sums(const Tile& tile, const Tensor& sums) const {
      double* of_dz = sums.mutable_data_ptr<double>();
      double* centered = of_dz + features;
      const auto& loops = dingo::batch_norm_loops<Stored>(kept.level);
      loops.gradient_sums(saved, tile, kept.coefficients.affine(), kept.activation, of_dz, centered);
      for (int64_t j = tile.begin; j < tile.end; ++j) {
        centered[j] += kept.coefficients.shift[j] * of_dz[j];
      }
    }

    void input_gradient(const Tile& tile, const Tensor& sums, const Tensor& skip, const Tensor& dx) const {
      const double* of_dz = sums.const_data_ptr<double>();
      const double* centered = of_dz + features;
      const auto& c = kept.coefficients;
      N slope[dingo::kTileColumns] = {}, constant[dingo::kTileColumns] = {};
      for (int64_t j = tile.begin; kept.training && j < tile.end; ++j) {
        const double by_deviation = -c.scale[j] * c.invstd[j] * c.invstd[j] * (centered[j] / kept.count);
        slope[j - tile.begin] = static_cast<N>(by_deviation);
        constant[j - tile.begin] = static_cast<N>(by_deviation * c.shift[j] - c.scale[j] * (of_dz[j] / kept.count));
      }
      const auto& loops = dingo::batch_norm_loops<Stored>(kept.level);
      loops.input_gradient(saved, tile, c.affine(), kept.activation, slope, constant,
                           skip.defined() ? data<Stored>(skip) : nullptr, mutable_data<Stored>(dx));
    }

    Tensor weight_gradient(const Tensor& sums) const {
      const double* centered = sums.const_data_ptr<double>() + features;
      const Tensor gradient = empty_host({features}, dingo::scalar_type<N>());
      N* values = gradient.mutable_data_ptr<N>();
      for (int64_t j = 0; j < features; ++j) {
        values[j] = static_cast<N>(centered[j] * kept.coefficients.invstd[j]);
      }
      return gradient;
    }

    Tensor bias_gradient(const Tensor& sums) const {
      const double* of_dz = sums.const_data_ptr<double>();
      const Tensor gradient = empty_host({features}, dingo::scalar_type<N>());
      std::transform(of_dz, of_dz + features, gradient.mutable_data_ptr<N>(), [](double v) { return static_cast<N>(v); });
      return gradient;
    }
  };
};

void check_shapes(const Tensor& input, const BatchNormLayer& layer) {
  TORCH_CHECK(input.dim() >= 2, "batch normalization needs [batch, channels, ...], found ", input.sizes());
  TORCH_CHECK(input.size(1) > 0, "batch normalization needs channels, found ", input.sizes());
  TORCH_CHECK(layer.training || (layer.running_mean.defined() && layer.running_var.defined()),
              "batch normalization in evaluation needs running statistics");
  for (const Tensor& values : {layer.weight.value_or(Tensor()), layer.bias.value_or(Tensor()), layer.running_mean,
                               layer.running_var}) {
    const bool fits = !values.defined() || (values.dim() == 1 && values.size(0) == input.size(1));
    TORCH_CHECK(fits, "batch normalization of ", input.sizes(), " needs weights and statistics of shape [",
                input.size(1), "], found ", values.sizes());
  }
}

// Whether the kernels of `Stored` are made for these tensors.
template <typename Stored>
bool fits_kernels(const BatchNormLayer& layer) {
  const auto fits = [](const Tensor& values) {
    const bool same_type = !values.defined() || values.scalar_type() == dingo::scalar_type<Number<Stored>>();
    return same_type && (!values.defined() || (values.is_cpu() && values.is_contiguous()));
  };
  return fits(layer.weight.value_or(Tensor())) && fits(layer.bias.value_or(Tensor())) && fits(layer.running_mean) &&
         fits(layer.running_var);
}

template <typename Stored>
variable_list run(const Tensor& input, const BatchNormLayer& layer, bool with_skip) {
  if (input.dim() == 2 && input.is_cpu() && fits_kernels<Stored>(layer)) {
    return BatchNorm<Stored>::apply(input, layer.weight, layer.bias, layer, with_skip);
  }
  return {dingo::plain_batch_norm(input, layer), input};
}

variable_list run(const Tensor& input, const BatchNormLayer& layer, bool with_skip) {
  switch (input.scalar_type()) {
    case at::kFloat:
      return run<float>(input, layer, with_skip);
    case at::kDouble:
      return run<double>(input, layer, with_skip);
    case at::kBFloat16:
      return run<dingo::BFloat16>(input, layer, with_skip);
    default:
      return {dingo::plain_batch_norm(input, layer), input};
  }
}

}  // namespace

extern "C" {

// What batch_norm.rs passes; tensors may be null.
struct DingoBatchNorm {
  const Tensor *weight, *bias, *running_mean, *running_var, *num_batches_tracked;
  double momentum, eps;
  int32_t activation, training, has_ranks, level;
  dingo::RankCallbacks ranks;
};

static BatchNormLayer layer_of(const DingoBatchNorm* given) {
  return {
      dingo::optional_tensor(given->weight),
      dingo::optional_tensor(given->bias),
      dingo::optional_tensor(given->running_mean).value_or(Tensor()),
      dingo::optional_tensor(given->running_var).value_or(Tensor()),
      dingo::optional_tensor(given->num_batches_tracked).value_or(Tensor()),
      given->momentum,
      given->eps,
      static_cast<Activation>(given->activation),
      given->training != 0,
      given->has_ranks ? c10::make_intrusive<RankStatistics>(given->ranks) : nullptr,
      given->level,
  };
}

// What GPUs do over ranks, wherever the input is: for tests.
char* dingo_batch_norm_as_on_device(const Tensor* input, const DingoBatchNorm* given, Tensor** output) {
  return dingo::guard([&] { *output = new Tensor(dingo::device_sync_batch_norm(*input, layer_of(given))); });
}

// Takes `ranks.context` over in every case where it is there. `skip` may be null; else it is given the input once more,
// for a connection past the layer.
char* dingo_batch_norm(const Tensor* input, const DingoBatchNorm* given, Tensor** output, Tensor** skip) {
  return dingo::guard([&] {
    const BatchNormLayer layer = layer_of(given);
    check_shapes(*input, layer);
    const variable_list outputs = run(*input, layer, skip != nullptr);
    *output = new Tensor(outputs[0]);
    if (skip != nullptr) {
      *skip = new Tensor(outputs[1]);
    }
  });
}

}  // extern "C"
