// Host side of philox.h: whole arrays of random words and of noise. Called from random.rs, which checks the arguments.

#include "philox_x86.h"

#include <algorithm>

namespace {

using dingo::RandomStream;

DINGO_INLINE void fill_words(const RandomStream& stream, uint32_t position, uint32_t* words, uint64_t blocks) {
  for (uint64_t i = 0; i < blocks; ++i) {
    const dingo::PhiloxBlock block = dingo::philox4x32_10(stream, position + static_cast<uint32_t>(i));
    for (int j = 0; j < 4; ++j) words[4 * i + j] = block.word[j];
  }
}

template <int level>
DINGO_INLINE void fill_noise(const RandomStream& stream, float* real, float* imaginary, uint64_t bins) {
  constexpr uint64_t chunk = dingo::kNoiseChunk;
  float chunk_real[chunk], chunk_imaginary[chunk];
  for (uint64_t start = 0; start < bins; start += chunk) {
    dingo::noise_chunk_at_level<level>(stream, static_cast<uint32_t>(start / chunk), chunk_real, chunk_imaginary);
    const uint64_t count = std::min(chunk, bins - start);
    std::copy_n(chunk_real, count, real + start);
    std::copy_n(chunk_imaginary, count, imaginary + start);
  }
}

DINGO_AVX512 void fill_noise_avx512(const RandomStream& s, float* re, float* im, uint64_t n) {
  fill_noise<dingo::kAvx512>(s, re, im, n);
}
DINGO_AVX2 void fill_noise_avx2(const RandomStream& s, float* re, float* im, uint64_t n) {
  fill_noise<dingo::kAvx2>(s, re, im, n);
}
void fill_noise_baseline(const RandomStream& s, float* re, float* im, uint64_t n) {
  fill_noise<dingo::kBaseline>(s, re, im, n);
}

}  // namespace

extern "C" void dingo_philox_words(const RandomStream* stream, uint32_t position, uint32_t* words, uint64_t blocks) {
  fill_words(*stream, position, words, blocks);
}

extern "C" void dingo_philox_noise(int level, const RandomStream* stream, float* real, float* imaginary, uint64_t bins) {
  auto* fill = level == 2 ? fill_noise_avx512 : level == 1 ? fill_noise_avx2 : fill_noise_baseline;
  fill(*stream, real, imaginary, bins);
}
