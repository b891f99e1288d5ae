// How exact matrix products of single precision are (torch.set_float32_matmul_precision).

#include <ATen/Context.h>

#include "guard.h"

extern "C" {

// 0, 1, 2 for highest, high, medium.
char* dingo_set_float32_matmul_precision(int precision) {
  return dingo::guard([&] {
    const char* names[] = {"highest", "high", "medium"};
    at::globalContext().setFloat32MatmulPrecision(names[precision]);
  });
}

char* dingo_float32_matmul_precision(int* precision) {
  return dingo::guard([&] { *precision = static_cast<int>(at::globalContext().float32MatmulPrecision()); });
}

}  // extern "C"
