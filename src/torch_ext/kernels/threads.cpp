// How many threads libtorch's operations use when called from the present thread.

#include <ATen/Parallel.h>
#include <dlfcn.h>

namespace {

// Calls a `void(int)` function by that name, where the process has one.
void call_if_present(const char* name, int argument) {
  if (void* symbol = dlsym(RTLD_DEFAULT, name)) reinterpret_cast<void (*)(int)>(symbol)(argument);
}

}  // namespace

// at::set_num_threads would also become the default of every thread that has not used ATen yet, so the libraries below
// it are told instead: OpenMP's setting is one per thread, and MKL has a local one. Asking ATen first makes it set this
// thread up with its own default now, not later. Returns what ATen then says, or -1.
extern "C" int dingo_limit_thread(int threads) {
  try {
    at::get_num_threads();
    call_if_present("omp_set_num_threads", threads);
    call_if_present("MKL_Set_Num_Threads_Local", threads);
    return at::get_num_threads();
  } catch (...) {
    return -1;
  }
}
