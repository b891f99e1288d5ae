// Matrix products of single precision on the host, by the library that was measured to be the fastest (matmul.cpp).
#pragma once

#include <algorithm>
#include <cstdint>

namespace dingo {

// A matrix in memory row by row, rows `stride` elements apart; or, `transposed`, one whose transpose lies there so.
struct Matrix {
  float* data;
  int64_t rows, columns;
  int64_t stride;
  bool transposed = false;

  Matrix t() const { return {data, columns, rows, stride, !transposed}; }

  Matrix row_range(int64_t first, int64_t count) const {
    return {data + first * (transposed ? 1 : stride), count, columns, stride, transposed};
  }
  Matrix column_range(int64_t first, int64_t count) const {
    return {data + first * (transposed ? stride : 1), rows, count, stride, transposed};
  }

  // As it lies in memory.
  int64_t stored_rows() const { return transposed ? columns : rows; }
  int64_t stored_columns() const { return transposed ? rows : columns; }
  bool is_compact() const { return stride == stored_columns() || stored_rows() <= 1; }
};

// c = a b + beta c, with the threads of the caller; beta is 0 (c need not be initialized) or 1. c is not transposed.
void product(const Matrix& a, const Matrix& b, const Matrix& c, float beta);

}  // namespace dingo
