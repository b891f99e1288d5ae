// Linear layers, y = x Wᵀ + b, as one autograd function for one layer or for a group: layers that share inputs, read only
// some columns of them or several inputs one after the other, and write side by side into one output. Nothing is
// concatenated or sliced for that: matrix products read and write where things lie.

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/autocast_mode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "guard.h"
#include "kernels/column_sum.h"
#include "leaf_gradient.h"
#include "matmul.h"

namespace {

using at::Tensor;
using dingo::Matrix;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Columns of an input.
struct Part {
  int64_t input, column, width;
};

// A layer of a group: what it reads, along the columns of its weight, and which columns of which output it writes.
struct Place {
  std::vector<Part> parts;
  int64_t output, column, width;
};

struct Group final : torch::CustomClassHolder {
  std::vector<Place> places;  // of each layer
  int64_t inputs = 0;
  // Whether layers read all columns of the input.
  std::vector<bool> is_read_whole;
  std::vector<int64_t> output_widths;

  int64_t layers() const { return static_cast<int64_t>(places.size()); }
};

Tensor with_dense_rows(const Tensor& x) { return x.stride(1) == 1 || x.size(1) <= 1 ? x : x.contiguous(); }

Matrix matrix_of(const Tensor& x) {
  // Of a single row or column, strides mean nothing.
  const int64_t stride = x.size(0) <= 1 ? x.size(1) : x.stride(0);
  return {static_cast<float*>(x.data_ptr()), x.size(0), x.size(1), stride};
}

Tensor uninitialized(int64_t rows, int64_t columns) {
  return at::detail::empty_cpu({rows, columns}, at::TensorOptions(at::kFloat));
}

void fill_rows(const Matrix& m, const float* row) {
  at::parallel_for(0, m.rows, std::max<int64_t>(1, 32768 / std::max<int64_t>(1, m.columns)), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      std::copy_n(row, m.columns, m.data + i * m.stride);
    }
  });
}

void fill_with_zeros(const Matrix& m) {
  const std::vector<float> zeros(m.columns);
  fill_rows(m, zeros.data());
}

// The gradient of one input, of which layers read columns: each range the first time, or once more.
class InputGradient {
 public:
  // `is_written` is whether layers that have a gradient read all of the input.
  InputGradient(const Tensor& input, bool needed, bool is_written) {
    if (needed) {
      gradient_ = uninitialized(input.size(0), input.size(1));
      is_set_ = !is_written;
      if (is_set_) fill_with_zeros(matrix_of(gradient_));
    }
  }

  bool is_needed() const { return gradient_.defined(); }

  void add(const Matrix& dy, const Matrix& weight, const Part& part) {
    const bool again = is_set_ || std::find(seen_.begin(), seen_.end(), part.column) != seen_.end();
    dingo::product(dy, weight, matrix_of(gradient_).column_range(part.column, part.width), again ? 1.0f : 0.0f);
    seen_.push_back(part.column);
  }

  Tensor finish() const { return gradient_; }

 private:
  Tensor gradient_;
  bool is_set_ = false;
  std::vector<int64_t> seen_;
};

class LinearGroup final : public torch::autograd::Function<LinearGroup> {
 public:
  // `tensors` are the inputs [batch, width], then the weights [width, columns read], then the biases [width].
  static variable_list forward(AutogradContext* ctx, at::TensorList tensors, const c10::intrusive_ptr<Group>& group) {
    variable_list saved(tensors.begin(), tensors.end());
    variable_list inputs;
    for (int64_t i = 0; i < group->inputs; ++i) {
      inputs.push_back(with_dense_rows(tensors[i]));
      saved[i] = inputs[i];
    }
    variable_list outputs;
    for (const int64_t width : group->output_widths) {
      outputs.push_back(uninitialized(inputs[0].size(0), width));
    }
    for (int64_t l = 0; l < group->layers(); ++l) {
      const Place& place = group->places[l];
      const Matrix weight = matrix_of(tensors[group->inputs + l]);
      const Matrix y = matrix_of(outputs[place.output]).column_range(place.column, place.width);
      fill_rows(y, tensors[group->inputs + group->layers() + l].const_data_ptr<float>());
      int64_t column = 0;
      for (const Part& part : place.parts) {
        const Matrix x = matrix_of(inputs[part.input]).column_range(part.column, part.width);
        dingo::product(x, weight.column_range(column, part.width).t(), y, 1);
        column += part.width;
      }
    }
    ctx->save_for_backward(std::move(saved));
    ctx->saved_data["group"] = c10::IValue::make_capsule(group);
    ctx->set_materialize_grads(false);
    return outputs;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grad_outputs) {
    TORCH_CHECK(!at::GradMode::is_enabled(), "linear layers have first derivatives only");
    const auto saved = ctx->get_saved_variables();
    const auto capsule = ctx->saved_data["group"].toCapsule();
    const Group& group = static_cast<const Group&>(*capsule);
    const int64_t layers = group.layers();

    variable_list dys;
    bool all_defined = true;
    for (const Tensor& dy : grad_outputs) {
      dys.push_back(dy.defined() ? with_dense_rows(dy) : dy);
      all_defined = all_defined && dy.defined();
    }
    std::vector<InputGradient> input_gradients;
    for (int64_t i = 0; i < group.inputs; ++i) {
      input_gradients.emplace_back(saved[i], ctx->needs_input_grad(i), all_defined && group.is_read_whole[i]);
    }

    variable_list gradients(saved.size() + 1);
    for (int64_t l = layers - 1; l >= 0; --l) {
      const Place& place = group.places[l];
      if (!dys[place.output].defined()) {
        continue;
      }
      const Matrix dy = matrix_of(dys[place.output]).column_range(place.column, place.width);
      const int64_t w = group.inputs + l, b = w + layers;
      const dingo::LeafGradient weight_gradient(saved[w], ctx->needs_input_grad(w));
      int64_t column = 0;
      for (const Part& part : place.parts) {
        if (weight_gradient.is_needed()) {
          const Matrix x = matrix_of(saved[part.input]).column_range(part.column, part.width);
          const Matrix dw{weight_gradient.data(), saved[w].size(0), saved[w].size(1), saved[w].size(1)};
          dingo::product(dy.t(), x, dw.column_range(column, part.width), weight_gradient.beta());
        }
        if (input_gradients[part.input].is_needed()) {
          const Matrix weight = matrix_of(saved[w]).column_range(column, part.width);
          input_gradients[part.input].add(dy, weight, part);
        }
        column += part.width;
      }
      if (weight_gradient.is_needed()) {
        gradients[w] = weight_gradient.finish();
      }
      const dingo::LeafGradient bias_gradient(saved[b], ctx->needs_input_grad(b));
      if (bias_gradient.is_needed()) {
        dingo::column_sums(dy.data, dy.rows, dy.columns, dy.stride, bias_gradient.beta(), bias_gradient.data());
        gradients[b] = bias_gradient.finish();
      }
    }
    for (int64_t i = 0; i < group.inputs; ++i) {
      gradients[i] = input_gradients[i].finish();
    }
    return gradients;
  }
};

// The same by libtorch's own operations: on other devices, in other kinds, and under autocast, which then sees them.
variable_list by_plain_operations(at::TensorList tensors, const Group& group) {
  std::vector<variable_list> pieces(group.output_widths.size());
  for (int64_t l = 0; l < group.layers(); ++l) {
    variable_list parts;
    for (const Part& part : group.places[l].parts) {
      const Tensor& input = tensors[part.input];
      parts.push_back(part.width == input.size(1) ? input : input.narrow(1, part.column, part.width));
    }
    const Tensor x = parts.size() == 1 ? parts[0] : at::cat(parts, 1);
    const int64_t w = group.inputs + l;
    pieces[group.places[l].output].push_back(at::linear(x, tensors[w], tensors[w + group.layers()]));
  }
  variable_list outputs;
  for (const variable_list& piece : pieces) {
    outputs.push_back(piece.size() == 1 ? piece[0] : at::cat(piece, 1));
  }
  return outputs;
}

bool is_plain(at::TensorList tensors) {
  if (at::autocast::is_autocast_enabled(at::kCPU) || tensors[0].size(0) == 0) {
    return true;
  }
  const auto is_ours = [](const Tensor& t) {
    return t.scalar_type() == at::kFloat && t.device().is_cpu() && t.layout() == at::kStrided;
  };
  return !std::all_of(tensors.begin(), tensors.end(), is_ours);
}

// Whether layers read all columns of an input of that width.
bool is_read_whole(const Group& group, int64_t input, int64_t width) {
  std::vector<std::pair<int64_t, int64_t>> ranges;
  for (const Place& place : group.places) {
    for (const Part& part : place.parts) {
      if (part.input == input) ranges.emplace_back(part.column, part.column + part.width);
    }
  }
  std::sort(ranges.begin(), ranges.end());
  ranges.erase(std::unique(ranges.begin(), ranges.end()), ranges.end());
  int64_t end = 0, read = 0;
  for (const auto& range : ranges) {
    TORCH_CHECK(range.first >= end, "linear layers must read the same columns of an input, or different ones");
    end = range.second;
    read += range.second - range.first;
  }
  return read == width;
}

void check(at::TensorList tensors, const Group& group) {
  for (int64_t l = 0; l < group.layers(); ++l) {
    const Place& place = group.places[l];
    const Tensor &weight = tensors[group.inputs + l], &bias = tensors[group.inputs + group.layers() + l];
    int64_t read = 0;
    for (const Part& part : place.parts) {
      const Tensor& input = tensors[part.input];
      TORCH_CHECK(input.dim() == 2 && input.size(0) == tensors[0].size(0) && part.column >= 0 && part.width >= 0 &&
                      part.column + part.width <= input.size(1),
                  "a linear layer cannot read columns ", part.column, " to ", part.column + part.width,
                  " of an input of shape ", input.sizes());
      read += part.width;
    }
    TORCH_CHECK(weight.dim() == 2 && weight.size(1) == read && bias.dim() == 1 && bias.size(0) == weight.size(0) &&
                    weight.stride(1) == 1 && bias.is_contiguous(),
                "a linear layer of ", read, " features does not fit its weight of shape ", weight.sizes(),
                " and its bias of shape ", bias.sizes());
  }
}

// As linear.rs's `RawLayer`.
struct Layer {
  const Tensor *weight, *bias;
  const Part* parts;
  int64_t part_count;
  int64_t output;
};

}  // namespace

extern "C" {

// The layers of an output write it one after the other. `outputs` has room for all of them.
char* dingo_linear_group(const Tensor* const* inputs, int64_t input_count, const Layer* layers, int64_t layer_count,
                         int64_t output_count, Tensor** outputs) {
  return dingo::guard([&] {
    auto group = c10::make_intrusive<Group>();
    group->inputs = input_count;
    group->output_widths.resize(output_count);
    variable_list tensors;
    tensors.reserve(input_count + 2 * layer_count);
    for (int64_t i = 0; i < input_count; ++i) {
      tensors.push_back(*inputs[i]);
    }
    for (const Layer* layer = layers; layer < layers + layer_count; ++layer) {
      tensors.push_back(*layer->weight);
      int64_t& width = group->output_widths.at(layer->output);
      group->places.push_back({std::vector<Part>(layer->parts, layer->parts + layer->part_count), layer->output, width,
                               layer->weight->size(0)});
      width += layer->weight->size(0);
    }
    for (const Layer* layer = layers; layer < layers + layer_count; ++layer) {
      tensors.push_back(*layer->bias);
    }
    check(tensors, *group);
    for (int64_t i = 0; i < input_count; ++i) {
      group->is_read_whole.push_back(is_read_whole(*group, i, tensors[i].size(1)));
    }
    const variable_list results =
        is_plain(tensors) ? by_plain_operations(tensors, *group) : LinearGroup::apply(at::TensorList(tensors), group);
    for (int64_t i = 0; i < output_count; ++i) {
      outputs[i] = new Tensor(results[i]);
    }
  });
}

}  // extern "C"
