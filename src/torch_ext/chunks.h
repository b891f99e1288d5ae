// Work on many stretches of memory in pieces of a fixed size, shared among threads.
#pragma once

#include <ATen/Parallel.h>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace dingo {

// Elements of a piece: 64 kB in single precision, which is long for a thread to begin and short enough to share out.
constexpr int64_t kChunk = 16384;

// Pieces that are worth a thread of their own: half a megabyte of single precision.
constexpr int64_t kChunksPerThread = 8;

// Where the pieces of each stretch begin in the list of all.
class Chunks {
 public:
  void add(int64_t elements) {
    sizes_.push_back(elements);
    starts_.push_back(starts_.back() + (elements + kChunk - 1) / kChunk);
  }

  int64_t count() const { return starts_.back(); }

  // Calls body(piece, stretch, first, count) for every piece. Which thread does so depends on their number, what a piece
  // is does not.
  template <typename Body>
  void for_each(const Body& body) const {
    at::parallel_for(0, count(), kChunksPerThread, [&](int64_t begin, int64_t end) {
      size_t stretch = std::upper_bound(starts_.begin(), starts_.end(), begin) - starts_.begin() - 1;
      for (int64_t piece = begin; piece < end; ++piece) {
        while (piece >= starts_[stretch + 1]) ++stretch;
        const int64_t first = (piece - starts_[stretch]) * kChunk;
        body(piece, stretch, first, std::min(kChunk, sizes_[stretch] - first));
      }
    });
  }

 private:
  std::vector<int64_t> sizes_;
  std::vector<int64_t> starts_ = {0};
};

}  // namespace dingo
