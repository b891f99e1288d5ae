// Autocast: while it is on, matrix products run in a short floating-point type (torch.amp.autocast).

#include <ATen/autocast_mode.h>

#include "guard.h"

extern "C" {

// What `dingo_autocast_exit` brings back.
struct DingoAutocastState {
  bool enabled;
  int8_t dtype;
};

// On this thread, for the device type given (c10::DeviceType). A scope that turns autocast on owns the cache of cast
// weights: it is cleared when the outermost one ends.
char* dingo_autocast_enter(int8_t device, bool enabled, int8_t dtype, DingoAutocastState* before) {
  return dingo::guard([&] {
    const auto type = static_cast<at::DeviceType>(device);
    *before = {at::autocast::is_autocast_enabled(type), static_cast<int8_t>(at::autocast::get_autocast_dtype(type))};
    if (enabled) {
      at::autocast::set_autocast_dtype(type, static_cast<at::ScalarType>(dtype));
    }
    at::autocast::set_autocast_enabled(type, enabled);
    at::autocast::increment_nesting();
  });
}

void dingo_autocast_exit(int8_t device, DingoAutocastState before) {
  const auto type = static_cast<at::DeviceType>(device);
  if (at::autocast::decrement_nesting() == 0) {
    at::autocast::clear_cache();
  }
  at::autocast::set_autocast_enabled(type, before.enabled);
  at::autocast::set_autocast_dtype(type, static_cast<at::ScalarType>(before.dtype));
}

}  // extern "C"
