// Counter-based random numbers: Philox4x32-10 (Salmon et al. 2011, doi:10.1145/2063384.2063405) and normal deviates by
// Box and Muller's transform.
//
// A block of four 32-bit words is a pure function of a key (2 words) and a counter (4 words). There are no library calls
// and no branches, so that a loop over blocks vectorizes; every operation is rounded as IEEE 754 says, so that results
// are the same for every vector width.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "portable.h"

namespace dingo {

// All blocks that share key and counter words 1 to 3; word 0 counts the blocks.
struct RandomStream {
  uint32_t key[2];
  uint32_t counter[3];
};

struct PhiloxBlock {
  uint32_t word[4];
};

DINGO_INLINE uint32_t high_product(uint32_t a, uint32_t b) {
  return static_cast<uint32_t>((static_cast<uint64_t>(a) * b) >> 32);
}

DINGO_INLINE PhiloxBlock philox4x32_10(const RandomStream& stream, uint32_t position) {
  constexpr uint32_t multiplier_0 = 0xD2511F53, multiplier_1 = 0xCD9E8D57;
  constexpr uint32_t weyl_0 = 0x9E3779B9, weyl_1 = 0xBB67AE85;
  uint32_t k0 = stream.key[0], k1 = stream.key[1];
  uint32_t c0 = position, c1 = stream.counter[0], c2 = stream.counter[1], c3 = stream.counter[2];
  for (int round = 0; round < 10; ++round) {
    const uint32_t high_0 = high_product(multiplier_0, c0), low_0 = multiplier_0 * c0;
    const uint32_t high_1 = high_product(multiplier_1, c2), low_1 = multiplier_1 * c2;
    c0 = high_1 ^ c1 ^ k0;
    c1 = low_1;
    c2 = high_0 ^ c3 ^ k1;
    c3 = low_0;
    k0 += weyl_0;
    k1 += weyl_1;
  }
  return {{c0, c1, c2, c3}};
}

DINGO_INLINE uint32_t float_bits(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

DINGO_INLINE float float_from_bits(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

// Uniform in [2^-33, 1]: near zero, where the tail of the normal distribution comes from, all 32 bits count. The two
// halves convert exactly and their sum is rounded once.
DINGO_INLINE float unit_interval(uint32_t bits) {
  const float high = static_cast<float>(static_cast<int32_t>(bits >> 16));
  const float low = static_cast<float>(static_cast<int32_t>(bits & 0xFFFF));
  return (high * 65536.0f + low) * 0x1p-32f + 0x1p-33f;
}

// Natural logarithm of a positive normal number, to about one unit in the last place (polynomial of Cephes' logf).
DINGO_INLINE float log_positive(float value) {
  // The mantissa in [sqrt(1/2), sqrt(2)): where it would exceed sqrt(2), half of it and one more in the exponent.
  const uint32_t sqrt_half_bits = 0x3F3504F3;
  const uint32_t bits = float_bits(value);
  const int32_t exponent = static_cast<int32_t>(bits - sqrt_half_bits) >> 23;
  const float mantissa = float_from_bits(bits - (static_cast<uint32_t>(exponent) << 23));
  const float x = mantissa - 1.0f, e = static_cast<float>(exponent);
  const float square = x * x;
  float p = 7.0376836292e-2f;
  p = p * x - 1.1514610310e-1f;
  p = p * x + 1.1676998740e-1f;
  p = p * x - 1.2420140846e-1f;
  p = p * x + 1.4249322787e-1f;
  p = p * x - 1.6668057665e-1f;
  p = p * x + 2.0000714765e-1f;
  p = p * x - 2.4999993993e-1f;
  p = p * x + 3.3333331174e-1f;
  // ln 2 in two parts, the first exact in few bits.
  const float tail = p * x * square - 2.12194440e-4f * e - 0.5f * square;
  return (x + tail) + 0.693359375f * e;
}

// Cosine and sine of 2 pi bits / 2^32, to about one unit in the last place (polynomials of Cephes' sinf and cosf).
DINGO_INLINE void cos_sin_turn(uint32_t bits, float& cosine, float& sine) {
  // The nearest multiple of a quarter turn, and what is left of it: an angle of at most pi / 4.
  const uint32_t quadrant = (bits + 0x20000000u) >> 30;
  const int32_t rest = static_cast<int32_t>(bits - (quadrant << 30));
  const float angle = static_cast<float>(rest) * 1.4629180792671596e-09f;  // 2 pi / 2^32
  const float square = angle * angle;
  const float s = ((-1.9515295891e-4f * square + 8.3321608736e-3f) * square - 1.6666654611e-1f) * square * angle + angle;
  const float c =
      ((2.443315711809948e-5f * square - 1.388731625493765e-3f) * square + 4.166664568298827e-2f) * square * square -
      0.5f * square + 1.0f;
  const bool swapped = (quadrant & 1) != 0;
  const float near_cosine = swapped ? s : c, near_sine = swapped ? c : s;
  // Cosine is negative in quadrants 1 and 2, sine in 2 and 3.
  cosine = float_from_bits(float_bits(near_cosine) ^ (((quadrant + 1) & 2) << 30));
  sine = float_from_bits(float_bits(near_sine) ^ ((quadrant & 2) << 30));
}

// Two independent standard normal deviates from two words; none exceeds 6.8 in magnitude.
DINGO_INLINE void box_muller(uint32_t radius_bits, uint32_t angle_bits, float& first, float& second) {
  const float radius = sqrtf(-2.0f * log_positive(unit_interval(radius_bits)));
  float cosine, sine;
  cos_sin_turn(angle_bits, cosine, sine);
  first = radius * cosine;
  second = radius * sine;
}

// White noise comes in chunks of 64 complex bins, whatever the vector width: block 32 c + l of the stream is the noise of
// bins l and l + 32 of chunk c.
constexpr int kNoiseChunk = 64;

DINGO_INLINE void noise_chunk(const RandomStream& stream, uint32_t chunk, float* real, float* imaginary) {
  constexpr int half = kNoiseChunk / 2;
  for (int lane = 0; lane < half; ++lane) {
    const PhiloxBlock block = philox4x32_10(stream, chunk * half + lane);
    box_muller(block.word[0], block.word[1], real[lane], imaginary[lane]);
    box_muller(block.word[2], block.word[3], real[lane + half], imaginary[lane + half]);
  }
}

}  // namespace dingo
