// Host side of strain.h: one pass over memory per detector and sample. Called from strain.rs, which checks the arguments.

#include "strain.h"

#include <algorithm>

namespace {

using dingo::Complex;
using dingo::kNoiseChunk;

// One sample as one detector sees it; the layout of strain.rs's `RawProjection`.
struct Projection {
  const float* h_plus;   // complex, interleaved, from bin 0
  const float* h_cross;  // the same
  const float* asd;      // from bin 0; null leaves the strain as it is
  double turns;          // delay times bin width
  float plus, cross;     // antenna pattern times distance ratio
  uint32_t keep_from, keep_to;  // bins outside [keep_from, keep_to) are set to zero, counted in the output
  uint32_t has_noise;
  dingo::RandomStream noise;
};

// The network's input [3, bins]: real part, imaginary part, asd_scale / ASD.
DINGO_INLINE void network_input(const Projection& p, int64_t first, int64_t bins, float whitening, float asd_scale,
                                float* output) {
  float noise_real[kNoiseChunk] = {}, noise_imaginary[kNoiseChunk] = {};
  dingo::PhaseTable phases;
  phases.begin(p.turns, first);
  for (int64_t start = 0; start < bins; start += kNoiseChunk) {
    if (p.has_noise) {
      dingo::noise_chunk(p.noise, static_cast<uint32_t>(start / kNoiseChunk), noise_real, noise_imaginary);
    }
    const int64_t count = std::min<int64_t>(kNoiseChunk, bins - start);
    const float* h_plus = p.h_plus + 2 * (first + start);
    const float* h_cross = p.h_cross + 2 * (first + start);
    const float* asd = p.asd + first + start;
    float* real = output + start;
    float* imaginary = output + bins + start;
    float* inverse_asd = output + 2 * bins + start;
    const Complex chunk_phase = phases.start();
    DINGO_INDEPENDENT_ITERATIONS
    for (int64_t j = 0; j < count; ++j) {
      const Complex phase = multiply(chunk_phase, {phases.cosine[j], phases.sine[j]});
      const Complex strain = dingo::project({h_plus[2 * j], h_plus[2 * j + 1]}, {h_cross[2 * j], h_cross[2 * j + 1]},
                                            p.plus, p.cross, phase);
      const float inverse = 1.0f / asd[j];
      const float scale = inverse * whitening;
      real[j] = strain.real * scale + noise_real[j];
      imaginary[j] = strain.imaginary * scale + noise_imaginary[j];
      inverse_asd[j] = inverse * asd_scale;
    }
    phases.next_chunk();
  }
  for (int channel = 0; channel < 3; ++channel) {
    float* row = output + channel * bins;
    std::fill(row, row + p.keep_from, 0.0f);
    std::fill(row + p.keep_to, row + bins, 0.0f);
  }
}

// The complex strain of all bins, whitened where there is an ASD, without noise.
DINGO_INLINE void clean_strain(const Projection& p, int64_t bins, float whitening, float* output) {
  dingo::PhaseTable phases;
  phases.begin(p.turns, 0);
  for (int64_t start = 0; start < bins; start += kNoiseChunk) {
    const int64_t count = std::min<int64_t>(kNoiseChunk, bins - start);
    const Complex chunk_phase = phases.start();
    DINGO_INDEPENDENT_ITERATIONS
    for (int64_t j = 0; j < count; ++j) {
      const int64_t k = start + j;
      const Complex phase = multiply(chunk_phase, {phases.cosine[j], phases.sine[j]});
      const Complex strain = dingo::project({p.h_plus[2 * k], p.h_plus[2 * k + 1]},
                                            {p.h_cross[2 * k], p.h_cross[2 * k + 1]}, p.plus, p.cross, phase);
      const float scale = p.asd != nullptr ? (1.0f / p.asd[k]) * whitening : 1.0f;
      output[2 * k] = strain.real * scale;
      output[2 * k + 1] = strain.imaginary * scale;
    }
    phases.next_chunk();
  }
}

DINGO_INLINE void network_inputs(const Projection* p, int64_t count, int64_t first, int64_t bins, float whitening,
                                 float asd_scale, float* output) {
  for (int64_t i = 0; i < count; ++i) network_input(p[i], first, bins, whitening, asd_scale, output + i * 3 * bins);
}

DINGO_AVX512 void network_inputs_avx512(const Projection* p, int64_t count, int64_t first, int64_t bins, float whitening,
                                        float asd_scale, float* output) {
  network_inputs(p, count, first, bins, whitening, asd_scale, output);
}
DINGO_AVX2 void network_inputs_avx2(const Projection* p, int64_t count, int64_t first, int64_t bins, float whitening,
                                    float asd_scale, float* output) {
  network_inputs(p, count, first, bins, whitening, asd_scale, output);
}
void network_inputs_baseline(const Projection* p, int64_t count, int64_t first, int64_t bins, float whitening,
                             float asd_scale, float* output) {
  network_inputs(p, count, first, bins, whitening, asd_scale, output);
}

}  // namespace

// Row i of output is the network's input for projection i.
extern "C" void dingo_strain_network_inputs(int level, const Projection* p, int64_t count, int64_t first, int64_t bins,
                                            float whitening, float asd_scale, float* output) {
  auto* run = level == 2 ? network_inputs_avx512 : level == 1 ? network_inputs_avx2 : network_inputs_baseline;
  run(p, count, first, bins, whitening, asd_scale, output);
}

// Row i of output is the clean strain of projection i, complex and interleaved.
extern "C" void dingo_strain_clean(const Projection* p, int64_t count, int64_t bins, float whitening, float* output) {
  for (int64_t i = 0; i < count; ++i) clean_strain(p[i], bins, whitening, output + i * 2 * bins);
}
