// y = W x + b with W = L U, and log |det W|, as one autograd function. The matrices are as small as the number of
// parameters that a posterior has, so that they are made anew where they are needed, in double precision.

#include <ATen/EmptyTensor.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "guard.h"
#include "leaf_gradient.h"

namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Columns that are computed side by side; rows of matrices are padded to a multiple of them.
constexpr int64_t kTile = 16;
// Rows of a batch whose contributions are added up in single precision, and that one thread takes at a time.
constexpr int64_t kChunk = 64;

int64_t padded(int64_t n) { return (n + kTile - 1) / kTile * kTile; }

// A square matrix in double precision.
class Square {
 public:
  explicit Square(int64_t n) : n_(n), entries_(n * n) {}
  double& operator()(int64_t row, int64_t column) { return entries_[row * n_ + column]; }
  double operator()(int64_t row, int64_t column) const { return entries_[row * n_ + column]; }
  int64_t size() const { return n_; }

  Square t() const {
    Square result(n_);
    for (int64_t i = 0; i < n_; ++i) {
      for (int64_t j = 0; j < n_; ++j) result(j, i) = (*this)(i, j);
    }
    return result;
  }

  Square times(const Square& other) const {
    Square result(n_);
    for (int64_t i = 0; i < n_; ++i) {
      for (int64_t k = 0; k < n_; ++k) {
        for (int64_t j = 0; j < n_; ++j) result(i, j) += (*this)(i, k) * other(k, j);
      }
    }
    return result;
  }

  // In single precision, with rows padded by zeros.
  std::vector<float> rounded() const {
    std::vector<float> result(n_ * padded(n_));
    for (int64_t i = 0; i < n_; ++i) {
      for (int64_t j = 0; j < n_; ++j) result[i * padded(n_) + j] = static_cast<float>((*this)(i, j));
    }
    return result;
  }

 private:
  int64_t n_;
  std::vector<double> entries_;
};

// PyTorch's, with its threshold.
double softplus(double x) { return x > 20 ? x : std::log1p(std::exp(x)); }
double softplus_slope(double x) { return x > 20 ? 1 : 1 / (1 + std::exp(-x)); }

struct Factors {
  Square lower, upper;

  Factors(int64_t n, const Tensor& lower_entries, const Tensor& upper_entries, const Tensor& diagonal, double eps)
      : lower(n), upper(n) {
    const float *below = lower_entries.const_data_ptr<float>(), *above = upper_entries.const_data_ptr<float>();
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t j = 0; j < i; ++j) lower(i, j) = *below++;
      lower(i, i) = 1;
      upper(i, i) = softplus(diagonal.const_data_ptr<float>()[i]) + eps;
      for (int64_t j = i + 1; j < n; ++j) upper(i, j) = *above++;
    }
  }
};

// outputs[row, i] = start[i] + sum over j of inputs[row, j] matrix[j, i]; `matrix` and `start` are padded.
void multiply(const float* inputs, int64_t rows, int64_t n, const std::vector<float>& matrix,
              const std::vector<float>& start, float* outputs) {
  const int64_t width = padded(n);
  at::parallel_for(0, rows, std::max<int64_t>(1, 65536 / (n * width)), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      for (int64_t tile = 0; tile < width; tile += kTile) {
        float sum[kTile];
        std::copy_n(start.data() + tile, kTile, sum);
        for (int64_t j = 0; j < n; ++j) {
          const float factor = inputs[row * n + j];
          const float* entries = matrix.data() + j * width + tile;
          for (int64_t i = 0; i < kTile; ++i) sum[i] += factor * entries[i];
        }
        std::copy_n(sum, std::min(n - tile, kTile), outputs + row * n + tile);
      }
    }
  });
}

// The sum over rows of dyᵀ x, and that of dy: what the gradients of W and b are.
struct OuterSums {
  Square products;
  std::vector<double> sums;
};

OuterSums outer_sums(const float* dy, const float* x, int64_t rows, int64_t n) {
  const int64_t width = padded(n), chunks = (rows + kChunk - 1) / kChunk, size = (n + 1) * width;
  // Of each chunk, the products row by row, then the sums; added up in their order afterwards.
  std::vector<float> partial(chunks * size);
  at::parallel_for(0, chunks, 8, [&](int64_t begin, int64_t end) {
    std::vector<float> input(width);
    for (int64_t row = begin * kChunk; row < std::min(rows, end * kChunk); ++row) {
      float* into = partial.data() + row / kChunk * size;
      std::copy_n(x + row * n, n, input.data());
      for (int64_t i = 0; i < n; ++i) {
        const float factor = dy[row * n + i];
        for (int64_t j = 0; j < width; ++j) into[i * width + j] += factor * input[j];
        into[n * width + i] += factor;
      }
    }
  });
  OuterSums result{Square(n), std::vector<double>(n)};
  for (int64_t chunk = 0; chunk < chunks; ++chunk) {
    const float* from = partial.data() + chunk * size;
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t j = 0; j < n; ++j) result.products(i, j) += from[i * width + j];
      result.sums[i] += from[n * width + i];
    }
  }
  return result;
}

Tensor zeros(at::IntArrayRef shape) {
  Tensor tensor = at::detail::empty_cpu(shape, at::TensorOptions(at::kFloat));
  std::fill_n(tensor.mutable_data_ptr<float>(), tensor.numel(), 0.0f);
  return tensor;
}

// Adds the numbers that `value(i)` gives to a parameter's gradient.
template <typename Value>
Tensor gradient_of(const Tensor& parameter, bool needed, Value&& value) {
  const dingo::LeafGradient gradient(parameter, needed);
  if (gradient.is_needed()) {
    float* data = gradient.data();
    for (int64_t i = 0; i < parameter.numel(); ++i) {
      const float number = static_cast<float>(value(i));
      data[i] = gradient.beta() == 0 ? number : data[i] + number;
    }
  }
  return gradient.finish();
}

class LuLinear final : public torch::autograd::Function<LuLinear> {
 public:
  static variable_list forward(AutogradContext* ctx, const Tensor& input, const Tensor& bias, const Tensor& lower,
                               const Tensor& upper, const Tensor& diagonal, double eps) {
    const Tensor x = input.contiguous();
    const int64_t n = bias.size(0);
    const Factors factors(n, lower, upper, diagonal, eps);
    std::vector<float> start(padded(n));
    std::copy_n(bias.const_data_ptr<float>(), n, start.data());
    const Tensor y = at::detail::empty_cpu(x.sizes(), at::TensorOptions(at::kFloat));
    multiply(x.const_data_ptr<float>(), x.size(0), n, factors.lower.times(factors.upper).t().rounded(), start,
             y.mutable_data_ptr<float>());
    double log_determinant = 0;
    for (int64_t i = 0; i < n; ++i) log_determinant += std::log(factors.upper(i, i));
    const Tensor logabsdet = at::detail::empty_cpu({}, at::TensorOptions(at::kFloat));
    *logabsdet.mutable_data_ptr<float>() = static_cast<float>(log_determinant);

    ctx->save_for_backward({x, bias, lower, upper, diagonal});
    ctx->saved_data["eps"] = eps;
    ctx->set_materialize_grads(false);
    return {y, logabsdet};
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grad_outputs) {
    TORCH_CHECK(!at::GradMode::is_enabled(), "LU linear transforms have first derivatives only");
    const auto saved = ctx->get_saved_variables();
    const Tensor &x = saved[0], &bias = saved[1], &lower = saved[2], &upper = saved[3], &diagonal = saved[4];
    const int64_t n = bias.size(0), rows = x.size(0);
    const Factors factors(n, lower, upper, diagonal, ctx->saved_data["eps"].toDouble());
    const Tensor dy = grad_outputs[0].defined() ? grad_outputs[0].contiguous() : zeros(x.sizes());
    const double d_logabsdet = grad_outputs[1].defined() ? *grad_outputs[1].const_data_ptr<float>() : 0;

    variable_list gradients(6);
    if (ctx->needs_input_grad(0)) {
      gradients[0] = at::detail::empty_cpu(x.sizes(), at::TensorOptions(at::kFloat));
      multiply(dy.const_data_ptr<float>(), rows, n, factors.lower.times(factors.upper).rounded(),
               std::vector<float>(padded(n)), gradients[0].mutable_data_ptr<float>());
    }
    const OuterSums sums = outer_sums(dy.const_data_ptr<float>(), x.const_data_ptr<float>(), rows, n);
    const Square d_lower = sums.products.times(factors.upper.t()), d_upper = factors.lower.t().times(sums.products);
    std::vector<double> below, above;
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t j = 0; j < i; ++j) below.push_back(d_lower(i, j));
      for (int64_t j = i + 1; j < n; ++j) above.push_back(d_upper(i, j));
    }
    gradients[1] = gradient_of(bias, ctx->needs_input_grad(1), [&](int64_t i) { return sums.sums[i]; });
    gradients[2] = gradient_of(lower, ctx->needs_input_grad(2), [&](int64_t i) { return below[i]; });
    gradients[3] = gradient_of(upper, ctx->needs_input_grad(3), [&](int64_t i) { return above[i]; });
    gradients[4] = gradient_of(diagonal, ctx->needs_input_grad(4), [&](int64_t i) {
      return (d_upper(i, i) + d_logabsdet / factors.upper(i, i)) *
             softplus_slope(diagonal.const_data_ptr<float>()[i]);
    });
    return gradients;
  }
};

}  // namespace

extern "C" char* dingo_lu_linear(const Tensor* input, const Tensor* bias, const Tensor* lower_entries,
                                 const Tensor* upper_entries, const Tensor* diagonal, double eps, Tensor** output,
                                 Tensor** logabsdet) {
  return dingo::guard([&] {
    for (const Tensor* tensor : {input, bias, lower_entries, upper_entries, diagonal}) {
      TORCH_CHECK(tensor->scalar_type() == at::kFloat && tensor->device().is_cpu(),
                  "an LU linear transform needs single precision on the host, found ", tensor->scalar_type(), " on ",
                  tensor->device());
    }
    const int64_t n = bias->numel(), entries = n * (n - 1) / 2;
    TORCH_CHECK(bias->dim() == 1 && input->dim() == 2 && input->size(1) == n && diagonal->numel() == n &&
                    lower_entries->numel() == entries && upper_entries->numel() == entries &&
                    bias->is_contiguous() && diagonal->is_contiguous() && lower_entries->is_contiguous() &&
                    upper_entries->is_contiguous(),
                "an LU linear transform of ", n, " features does not fit an input of shape ", input->sizes());
    const variable_list results =
        LuLinear::apply(*input, *bias, *lower_entries, *upper_entries, *diagonal, eps);
    *output = new Tensor(results[0]);
    *logabsdet = new Tensor(results[1]);
  });
}
