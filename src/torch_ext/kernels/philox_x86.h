// Philox for whole chunks of noise on x86, with the instruction that multiplies 32-bit words to 64-bit products, which
// compilers do not find by themselves. The same words as philox.h's.
#pragma once

#include "philox.h"

// Instruction sets by the numbers of simd.rs.
namespace dingo {
enum Level { kBaseline = 0, kAvx2 = 1, kAvx512 = 2 };
}

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>

// GCC 12 takes the undefined vectors in its own header for a mistake.
#pragma GCC diagnostic push
#if !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#pragma GCC diagnostic ignored "-Wuninitialized"

namespace dingo {

// Every 64-bit lane carries a block's word in its lower half; what gathers in the upper half is never looked at.
#define DINGO_PHILOX_LANES(target, Vector, multiply, shift, exclusive_or, constant, positions)                          \
  target DINGO_INLINE void philox_lanes(const RandomStream& stream, Vector positions, Vector* c) {                      \
    const Vector multiplier_0 = constant(0xD2511F53), multiplier_1 = constant(0xCD9E8D57);                              \
    uint32_t k0 = stream.key[0], k1 = stream.key[1];                                                                    \
    c[0] = positions;                                                                                                   \
    for (int word = 1; word < 4; ++word) c[word] = constant(stream.counter[word - 1]);                                  \
    for (int round = 0; round < 10; ++round) {                                                                          \
      const Vector product_0 = multiply(multiplier_0, c[0]), product_1 = multiply(multiplier_1, c[2]);                  \
      c[0] = exclusive_or(exclusive_or(shift(product_1, 32), c[1]), constant(k0));                                      \
      c[2] = exclusive_or(exclusive_or(shift(product_0, 32), c[3]), constant(k1));                                      \
      c[1] = product_1;                                                                                                 \
      c[3] = product_0;                                                                                                 \
      k0 += 0x9E3779B9;                                                                                                 \
      k1 += 0xBB67AE85;                                                                                                 \
    }                                                                                                                   \
  }

DINGO_PHILOX_LANES(DINGO_AVX512, __m512i, _mm512_mul_epu32, _mm512_srli_epi64, _mm512_xor_si512, _mm512_set1_epi64, positions)
DINGO_PHILOX_LANES(DINGO_AVX2, __m256i, _mm256_mul_epu32, _mm256_srli_epi64, _mm256_xor_si256, _mm256_set1_epi64x, positions)
#undef DINGO_PHILOX_LANES

// words[w][i]: word w of block `position + i`. These are called, not inlined: what calls them is written for all levels.
DINGO_AVX512 inline void philox_words_avx512(const RandomStream& stream, uint32_t position,
                                             uint32_t (*words)[kNoiseChunk / 2]) {
  const __m512i lanes = _mm512_set_epi64(7, 6, 5, 4, 3, 2, 1, 0);
  for (int i = 0; i < kNoiseChunk / 2; i += 8) {
    __m512i c[4];
    philox_lanes(stream, _mm512_add_epi64(_mm512_set1_epi64(position + i), lanes), c);
    for (int word = 0; word < 4; ++word) {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(words[word] + i), _mm512_cvtepi64_epi32(c[word]));
    }
  }
}

DINGO_AVX2 inline void philox_words_avx2(const RandomStream& stream, uint32_t position,
                                         uint32_t (*words)[kNoiseChunk / 2]) {
  const __m256i lanes = _mm256_set_epi64x(3, 2, 1, 0);
  const __m256i lower_halves = _mm256_set_epi32(0, 0, 0, 0, 6, 4, 2, 0);
  for (int i = 0; i < kNoiseChunk / 2; i += 4) {
    __m256i c[4];
    philox_lanes(stream, _mm256_add_epi64(_mm256_set1_epi64x(position + i), lanes), c);
    for (int word = 0; word < 4; ++word) {
      const __m256i packed = _mm256_permutevar8x32_epi32(c[word], lower_halves);
      _mm_storeu_si128(reinterpret_cast<__m128i*>(words[word] + i), _mm256_castsi256_si128(packed));
    }
  }
}

}  // namespace dingo
#pragma GCC diagnostic pop
#endif

namespace dingo {

// philox.h's noise_chunk with the level's instructions.
template <int level>
DINGO_INLINE void noise_chunk_at_level(const RandomStream& stream, uint32_t chunk, float* real, float* imaginary) {
#if defined(__x86_64__) && defined(__GNUC__)
  if constexpr (level != kBaseline) {
    constexpr int half = kNoiseChunk / 2;
    uint32_t words[4][half];
    if constexpr (level == kAvx512) {
      philox_words_avx512(stream, chunk * half, words);
    } else {
      philox_words_avx2(stream, chunk * half, words);
    }
    DINGO_INDEPENDENT_ITERATIONS
    for (int lane = 0; lane < half; ++lane) {
      box_muller(words[0][lane], words[1][lane], real[lane], imaginary[lane]);
      box_muller(words[2][lane], words[3][lane], real[lane + half], imaginary[lane + half]);
    }
    return;
  }
#endif
  noise_chunk(stream, chunk, real, imaginary);
}

}  // namespace dingo
