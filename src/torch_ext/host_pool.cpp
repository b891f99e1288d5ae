// Tensors of floats in host memory that is used again and again. Called from host_pool.rs.

#include <ATen/ATen.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <new>
#include <vector>

#include "guard.h"

namespace {

// Free blocks that are kept; what comes back beyond them goes to the system.
constexpr size_t kKept = 4;

// Blocks begin at huge pages, so that few entries of the translation buffer reach all of their memory.
constexpr size_t kHugePage = size_t{2} << 20;

struct Block {
  void* memory;
  size_t bytes;
};

class HostPool {
 public:
  ~HostPool() {
    for (const Block& block : free_) std::free(block.memory);
  }

  // The smallest free block that is large enough but not wastefully so, else a new one.
  Block take(size_t wanted) {
    const size_t bytes = (std::max<size_t>(wanted, 1) + kHugePage - 1) / kHugePage * kHugePage;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      auto best = free_.end();
      for (auto block = free_.begin(); block != free_.end(); ++block) {
        const bool fits = block->bytes >= bytes && block->bytes / 2 <= bytes;
        if (fits && (best == free_.end() || block->bytes < best->bytes)) best = block;
      }
      if (best != free_.end()) {
        const Block block = *best;
        free_.erase(best);
        return block;
      }
    }
    void* memory = std::aligned_alloc(kHugePage, bytes);
    if (memory == nullptr) throw std::bad_alloc();
    // Where the system has no huge pages, ordinary ones do.
    madvise(memory, bytes, MADV_HUGEPAGE);
    return {memory, bytes};
  }

  void give_back(Block block) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      free_.push_back(block);
      if (free_.size() <= kKept) return;
      // The oldest, which a change of sizes may have left behind.
      block = free_.front();
      free_.erase(free_.begin());
    }
    std::free(block.memory);
  }

 private:
  std::mutex mutex_;
  std::vector<Block> free_;
};

}  // namespace

extern "C" {

// A handle on a new pool, for dingo_host_pool_delete.
char* dingo_host_pool_new(std::shared_ptr<HostPool>** pool) {
  return dingo::guard([&] { *pool = new std::shared_ptr<HostPool>(std::make_shared<HostPool>()); });
}

// Tensors that are still in use keep what they need.
void dingo_host_pool_delete(std::shared_ptr<HostPool>* pool) { delete pool; }

// A contiguous float tensor with whatever numbers its memory holds; the memory goes back to the pool with the last handle.
char* dingo_host_pool_empty(const std::shared_ptr<HostPool>* pool, const int64_t* sizes, size_t dimensions,
                            at::Tensor** tensor) {
  return dingo::guard([&] {
    const at::IntArrayRef shape(sizes, dimensions);
    const std::shared_ptr<HostPool> owner = *pool;
    const Block block = owner->take(c10::multiply_integers(shape) * sizeof(float));
    const auto deleter = [owner, block](void*) { owner->give_back(block); };
    *tensor = new at::Tensor(at::from_blob(block.memory, shape, deleter, at::kFloat));
  });
}

}  // extern "C"
