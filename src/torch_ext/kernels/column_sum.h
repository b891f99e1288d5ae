// Sums over the rows of a matrix: the gradient of a bias.
#pragma once

#include <cstdint>

namespace dingo {

// sums[c] = beta sums[c] + sum over rows r of values[r stride + c], with the threads of the caller. The order of the
// summation depends on nothing but the number of rows.
void column_sums(const float* values, int64_t rows, int64_t columns, int64_t stride, float beta, float* sums);

}  // namespace dingo
