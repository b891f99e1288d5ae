// The matrix libraries inside libtorch, called without its dispatcher: MKL's sgemm and oneDNN's matmul. Which is faster
// depends on the processor (MKL takes a slow path on other makers'), so it is measured.

#include "matmul.h"

#include <ATen/EmptyTensor.h>
#include <ATen/Parallel.h>
#include <ATen/ops/from_blob.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <limits>
#include <vector>

#include "guard.h"

namespace at::native {
// Exported by libtorch, in none of its headers.
void mkldnn_matmul(const Tensor& mat1, const Tensor& mat2, const Tensor& result, float beta, float alpha);
}  // namespace at::native

extern "C" {
// Weak, since a libtorch that was built with another BLAS may keep it to itself.
__attribute__((weak)) void sgemm_(const char* transa, const char* transb, const int* m, const int* n, const int* k,
                                  const float* alpha, const float* a, const int* lda, const float* b, const int* ldb,
                                  const float* beta, float* c, const int* ldc);
}

namespace {

using at::Tensor;
using dingo::Matrix;

// The numbers of matmul.rs's `MatrixLibrary`.
enum Library : int { kMkl = 0, kOneDnn = 1, kLibraries = 2 };

std::atomic<int> chosen{kMkl};

bool fits_int(const Matrix& matrix) {
  constexpr int64_t limit = std::numeric_limits<int>::max();
  return matrix.rows <= limit && matrix.columns <= limit && matrix.stride <= limit;
}

int leading_dimension(const Matrix& matrix) {
  return static_cast<int>(std::max<int64_t>({matrix.stride, matrix.stored_columns(), 1}));
}

// BLAS counts column by column, so it is told to find the transpose: cᵀ = bᵀ aᵀ.
void mkl_product(const Matrix& a, const Matrix& b, const Matrix& c, float beta) {
  const char transpose_a = a.transposed ? 'T' : 'N', transpose_b = b.transposed ? 'T' : 'N';
  const int m = static_cast<int>(c.rows), n = static_cast<int>(c.columns), k = static_cast<int>(a.columns);
  const int lda = leading_dimension(a), ldb = leading_dimension(b), ldc = leading_dimension(c);
  const float one = 1;
  sgemm_(&transpose_b, &transpose_a, &n, &m, &k, &one, b.data, &ldb, a.data, &lda, &beta, c.data, &ldc);
}

Tensor as_tensor(const Matrix& m) {
  const int64_t stride = m.stored_rows() <= 1 ? m.stored_columns() : m.stride;
  const int64_t row_stride = m.transposed ? 1 : stride, column_stride = m.transposed ? stride : 1;
  return at::from_blob(m.data, {m.rows, m.columns}, {row_stride, column_stride}, at::kFloat);
}

// A copy whose rows follow one another, kept alive by `memory`.
Matrix packed(const Matrix& m, Tensor& memory) {
  const int64_t rows = m.stored_rows(), columns = m.stored_columns();
  memory = at::detail::empty_cpu({rows, columns}, at::TensorOptions(at::kFloat));
  float* copy = memory.mutable_data_ptr<float>();
  at::parallel_for(0, rows, std::max<int64_t>(1, 16384 / columns), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      std::copy_n(m.data + row * m.stride, columns, copy + row * columns);
    }
  });
  return {copy, m.rows, m.columns, columns, m.transposed};
}

// Elements of an operand that are packed at a time: few enough to stay in the cache until they are used.
constexpr int64_t kPanel = 1 << 20;

// oneDNN takes operands whose rows follow one another; others are packed, large ones panel by panel.
void onednn_product(const Matrix& a, const Matrix& b, const Matrix& c, float beta) {
  const auto is_large = [](const Matrix& m) { return !m.is_compact() && m.rows * m.columns > kPanel; };
  if (is_large(a) || is_large(b)) {
    const bool of_a = is_large(a);
    const Matrix& large = of_a ? a : b;
    const int64_t extent = large.stored_columns(), step = std::max<int64_t>(256, kPanel / large.stored_rows());
    const bool inner = of_a ? !a.transposed : b.transposed;
    for (int64_t start = 0; start < extent && step < extent; start += step) {
      const int64_t count = std::min(step, extent - start);
      if (inner) {
        onednn_product(a.column_range(start, count), b.row_range(start, count), c, start == 0 ? beta : 1);
      } else if (of_a) {
        onednn_product(a.row_range(start, count), b, c.row_range(start, count), beta);
      } else {
        onednn_product(a, b.column_range(start, count), c.column_range(start, count), beta);
      }
    }
    if (step < extent) return;
  }
  Tensor memory_a, memory_b;
  const Matrix compact_a = a.is_compact() ? a : packed(a, memory_a);
  const Matrix compact_b = b.is_compact() ? b : packed(b, memory_b);
  at::native::mkldnn_matmul(as_tensor(compact_a), as_tensor(compact_b), as_tensor(c), beta, 1);
}

void product_by(int library, const Matrix& a, const Matrix& b, const Matrix& c, float beta) {
  if (c.rows == 0 || c.columns == 0) {
    return;
  }
  if (a.columns == 0) {
    for (int64_t row = 0; row < c.rows && beta == 0; ++row) {
      std::fill_n(c.data + row * c.stride, c.columns, 0.0f);
    }
    return;
  }
  if (library == kMkl && sgemm_ != nullptr && fits_int(a) && fits_int(b) && fits_int(c)) {
    mkl_product(a, b, c, beta);
  } else {
    onednn_product(a, b, c, beta);
  }
}

// A tensor of two dimensions as a matrix, whichever of them is dense.
Matrix matrix_of(const Tensor& tensor) {
  TORCH_CHECK(tensor.dim() == 2 && tensor.scalar_type() == at::kFloat && tensor.device().is_cpu(),
              "a matrix of single precision on the host is needed, found ", tensor.scalar_type(), " ", tensor.sizes());
  float* data = static_cast<float*>(tensor.data_ptr());
  const int64_t rows = tensor.size(0), columns = tensor.size(1);
  if (tensor.stride(1) == 1 || columns <= 1) {
    return {data, rows, columns, rows <= 1 ? columns : tensor.stride(0)};
  }
  TORCH_CHECK(tensor.stride(0) == 1 || rows <= 1, "a matrix needs rows or columns that are dense, found strides ",
              tensor.strides());
  return Matrix{data, columns, rows, tensor.stride(1)}.t();
}

// What a training step is made of: layers forward, the gradients of their inputs and of their weights.
struct ProbeShape {
  int64_t m, n, k;
  bool transposed_a, transposed_b;
  int repetitions;
};
constexpr ProbeShape kShapes[] = {
    {512, 256, 256, false, true, 8},   {512, 256, 256, false, false, 8},   {256, 256, 512, true, false, 8},
    {512, 1024, 1024, false, true, 1}, {512, 1024, 1024, false, false, 1}, {1024, 1024, 512, true, false, 1},
    {512, 256, 8192, false, true, 1},  {256, 8192, 512, true, false, 1},
};

// Numbers that need all bits of single precision, between -1 and 1.
std::vector<float> probe_numbers(int64_t count, uint32_t state) {
  std::vector<float> numbers(count);
  for (float& number : numbers) {
    state = state * 1664525u + 1013904223u;
    number = static_cast<float>(static_cast<int32_t>(state)) * 0x1p-31f;
  }
  return numbers;
}

double element(const Matrix& m, int64_t row, int64_t column) {
  return m.data[m.transposed ? column * m.stride + row : row * m.stride + column];
}

// The largest error of a few rows of c = a b, relative to the largest number among them.
double relative_error(const Matrix& a, const Matrix& b, const Matrix& c) {
  double error = 0, largest = 0;
  for (int64_t row = 0; row < c.rows; row += (c.rows + 1) / 2) {
    for (int64_t column = 0; column < c.columns; column += 7) {
      double exact = 0;
      for (int64_t i = 0; i < a.columns; ++i) {
        exact += element(a, row, i) * element(b, i, column);
      }
      const double difference = std::abs(exact - element(c, row, column));
      error = difference <= error ? error : difference;  // also if it is not a number
      largest = std::max(largest, std::abs(exact));
    }
  }
  return error / largest;
}

// As matmul.rs's `RawSpeed`.
struct Speed {
  double seconds, flops, error;
};

// Rounds of which the fastest counts, since a machine has other things to do as well.
constexpr int kRounds = 4;

void probe(const ProbeShape& shape, Speed* speeds) {
  std::vector<float> memory_a = probe_numbers(shape.m * shape.k, 1), memory_b = probe_numbers(shape.k * shape.n, 2);
  std::vector<float> memory_c(shape.m * shape.n);
  const Matrix a = shape.transposed_a ? Matrix{memory_a.data(), shape.k, shape.m, shape.m}.t()
                                      : Matrix{memory_a.data(), shape.m, shape.k, shape.k};
  const Matrix b = shape.transposed_b ? Matrix{memory_b.data(), shape.n, shape.k, shape.k}.t()
                                      : Matrix{memory_b.data(), shape.k, shape.n, shape.n};
  const Matrix c{memory_c.data(), shape.m, shape.n, shape.n};
  double best[kLibraries];
  for (int library = 0; library < kLibraries; ++library) {
    best[library] = std::numeric_limits<double>::infinity();
    product_by(library, a, b, c, 0);
    speeds[library].error = std::max(speeds[library].error, relative_error(a, b, c));
  }
  for (int round = 0; round < kRounds; ++round) {
    for (int library = 0; library < kLibraries; ++library) {
      const auto begin = std::chrono::steady_clock::now();
      for (int i = 0; i < shape.repetitions; ++i) {
        product_by(library, a, b, c, 0);
      }
      const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
      best[library] = std::min(best[library], taken.count());
    }
  }
  for (int library = 0; library < kLibraries; ++library) {
    speeds[library].seconds += best[library];
    speeds[library].flops += 2.0 * shape.m * shape.n * shape.k * shape.repetitions;
  }
}

}  // namespace

void dingo::product(const Matrix& a, const Matrix& b, const Matrix& c, float beta) {
  product_by(chosen.load(std::memory_order_relaxed), a, b, c, beta);
}

extern "C" {

// `speeds` has room for all libraries.
char* dingo_matmul_measure(Speed* speeds) {
  return dingo::guard([&] {
    std::fill_n(speeds, static_cast<int>(kLibraries), Speed{0, 0, 0});
    for (const ProbeShape& shape : kShapes) {
      probe(shape, speeds);
    }
  });
}

bool dingo_matmul_has(int library) { return library == kOneDnn || sgemm_ != nullptr; }

void dingo_matmul_choose(int library) { chosen.store(library); }

int dingo_matmul_chosen() { return chosen.load(); }

// out = a b + beta out; a negative library stands for the one that was chosen.
char* dingo_matmul_product(int library, const Tensor* a, const Tensor* b, const Tensor* out, float beta) {
  return dingo::guard([&] {
    const Matrix left = matrix_of(*a), right = matrix_of(*b), result = matrix_of(*out);
    TORCH_CHECK(left.columns == right.rows && result.rows == left.rows && result.columns == right.columns,
                "the product of ", a->sizes(), " and ", b->sizes(), " is not ", out->sizes());
    TORCH_CHECK(!result.transposed, "the rows of a product must be dense, found strides ", out->strides());
    product_by(library < 0 ? chosen.load() : library, left, right, result, beta);
  });
}

}  // extern "C"
