// An optimizer's step over all parameters, in one pass over memory. Called from update.rs.

#include <ATen/ATen.h>

#include <vector>

#include "chunks.h"
#include "guard.h"
#include "kernels/update_loops.h"

namespace {

using dingo::ElementUpdate;
using dingo::UpdateSpan;

// One parameter's tensors and what happens to them; the layout of update.rs's `RawUpdate`.
struct Update {
  const at::Tensor* parameter;
  const at::Tensor* gradient;
  const at::Tensor* slots[dingo::kMaxSlots];  // null where the rule has none
  ElementUpdate element;
};

using Loop = void (*)(const ElementUpdate&, const UpdateSpan&, int64_t first, int64_t count, double inverse_scale);

template <typename T>
DINGO_AVX512 void update_avx512(const ElementUpdate& u, const UpdateSpan& s, int64_t first, int64_t n, double scale) {
  dingo::update<T>(u, s, first, n, scale);
}
template <typename T>
DINGO_AVX2 void update_avx2(const ElementUpdate& u, const UpdateSpan& s, int64_t first, int64_t n, double scale) {
  dingo::update<T>(u, s, first, n, scale);
}
template <typename T>
void update_baseline(const ElementUpdate& u, const UpdateSpan& s, int64_t first, int64_t n, double scale) {
  dingo::update<T>(u, s, first, n, scale);
}

template <typename T>
Loop loop_for(int level) {
  return level == 2 ? update_avx512<T> : level == 1 ? update_avx2<T> : update_baseline<T>;
}

void* memory(const at::Tensor& tensor, const at::Tensor& parameter, const char* name) {
  TORCH_CHECK(tensor.is_cpu() && tensor.is_contiguous() && tensor.scalar_type() == parameter.scalar_type() &&
                  tensor.sizes() == parameter.sizes(),
              "a fused update needs contiguous tensors in host memory, all like the parameter: its ", name, " has type ",
              tensor.scalar_type(), " and shape ", tensor.sizes(), ", the parameter ", parameter.scalar_type(), " and ",
              parameter.sizes());
  return tensor.data_ptr();
}

}  // namespace

extern "C" char* dingo_update(int level, size_t count, const Update* updates, double inverse_scale) {
  return dingo::guard([&] {
    std::vector<UpdateSpan> spans(count);
    std::vector<Loop> loops(count);
    dingo::Chunks chunks;
    for (size_t i = 0; i < count; ++i) {
      const Update& update = updates[i];
      const at::Tensor& parameter = *update.parameter;
      const bool is_float = parameter.scalar_type() == at::kFloat;
      TORCH_CHECK(is_float || parameter.scalar_type() == at::kDouble, "a fused update of type ",
                  parameter.scalar_type());
      spans[i].parameter = memory(parameter, parameter, "parameter");
      spans[i].gradient = memory(*update.gradient, parameter, "gradient");
      for (int slot = 0; slot < update.element.slots(); ++slot) {
        TORCH_CHECK(update.slots[slot] != nullptr, "a fused update without its slot ", slot);
        spans[i].slots[slot] = memory(*update.slots[slot], parameter, "slot");
      }
      loops[i] = is_float ? loop_for<float>(level) : loop_for<double>(level);
      chunks.add(parameter.numel());
    }
    chunks.for_each([&](int64_t, size_t i, int64_t first, int64_t elements) {
      loops[i](updates[i].element, spans[i], first, elements, inverse_scale);
    });
    // As after any operation in place: what was derived from the old values knows that it is out of date.
    for (size_t i = 0; i < count; ++i) updates[i].parameter->unsafeGetTensorImpl()->bump_version();
  });
}
