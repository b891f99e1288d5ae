// Host side of strain.h: one pass over memory per detector and sample. Called from strain.rs, which checks the arguments.

#include "strain.h"

#include <algorithm>
#include <cstring>

#include "philox_x86.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace {

using dingo::Complex;
using dingo::kNoiseChunk;

// One sample as one detector sees it; the layout of strain.rs's `RawProjection`.
struct Projection {
  const float* h_plus;   // from the first bin of the work at hand: complex, interleaved, or three products
  const float* h_cross;  // the same
  const float* asd;      // from bin 0; null leaves the strain as it is
  double turns;          // delay times bin width
  dingo::PhaseTable* phases;  // at the first bin of the work at hand; moved on by it
  float plus, cross;     // antenna pattern times distance ratio
  uint32_t keep_from, keep_to;  // bins outside [keep_from, keep_to) are set to zero, counted in the output
  uint32_t has_noise;
  dingo::RandomStream noise;
};

// A stretch of bins that is made at once; the layout of strain.rs's `RawStretch`.
struct Stretch {
  int64_t first;     // its first bin in the frequency domain
  int64_t position;  // and in the output, a multiple of kNoiseChunk
  int64_t bins;
  int64_t row;  // bins of a channel of the output
  int64_t plane;  // distance between the three products; 0 for complex waveforms
  float whitening, asd_scale;
};

// Bins whose output is put together in the first-level cache: 6 kB.
constexpr int64_t kPiece = 512;

// Copies past the caches: batches are too large to stay there until the network reads them.
DINGO_INLINE void stream_out(float* to, const float* from, int64_t count) {
#if defined(__SSE2__)
  constexpr int64_t line = 16;
  const int64_t head = std::min<int64_t>(count, (line - reinterpret_cast<uintptr_t>(to) / sizeof(float) % line) % line);
  const int64_t body = (count - head) / line * line;
  std::memcpy(to, from, head * sizeof(float));
  for (int64_t i = head; i < head + body; i += 4) {
    const __m128i four = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i));
    _mm_stream_si128(reinterpret_cast<__m128i*>(to + i), four);
  }
  to += head + body;
  from += head + body;
  count -= head + body;
#endif
  std::memcpy(to, from, count * sizeof(float));
}

// Channels of up to kPiece bins.
struct Piece {
  float channels[3][kPiece];
};

// How a waveform lies in memory.
struct Interleaved {
  static constexpr int64_t floats = 2;  // from one bin to the next
  static DINGO_INLINE Complex at(const float* h, int64_t, int64_t bin) { return {h[2 * bin], h[2 * bin + 1]}; }
};
struct Products {
  static constexpr int64_t floats = 1;
  static DINGO_INLINE Complex at(const float* h, int64_t plane, int64_t bin) {
    return dingo::from_products(h[bin], h[plane + bin], h[2 * plane + bin]);
  }
};

// The bins from s.first + start on.
template <int level, typename Waveform>
DINGO_INLINE void make_piece(const Projection& p, const Stretch& s, int64_t start, int64_t bins, Piece& piece) {
  float noise_real[kNoiseChunk] = {}, noise_imaginary[kNoiseChunk] = {};
  dingo::PhaseTable& phases = *p.phases;
  for (int64_t chunk = 0; chunk < bins; chunk += kNoiseChunk) {
    if (p.has_noise) {
      const int64_t number = (s.position + start + chunk) / kNoiseChunk;
      dingo::noise_chunk_at_level<level>(p.noise, static_cast<uint32_t>(number), noise_real, noise_imaginary);
    }
    const int64_t count = std::min<int64_t>(kNoiseChunk, bins - chunk);
    const float* h_plus = p.h_plus + Waveform::floats * (start + chunk);
    const float* h_cross = p.h_cross + Waveform::floats * (start + chunk);
    const float* asd = p.asd + s.first + start + chunk;
    float* real = piece.channels[0] + chunk;
    float* imaginary = piece.channels[1] + chunk;
    float* inverse_asd = piece.channels[2] + chunk;
    const Complex chunk_phase = phases.start();
    DINGO_INDEPENDENT_ITERATIONS
    for (int64_t j = 0; j < count; ++j) {
      const Complex phase = multiply(chunk_phase, {phases.cosine[j], phases.sine[j]});
      const Complex strain = dingo::project(Waveform::at(h_plus, s.plane, j), Waveform::at(h_cross, s.plane, j), p.plus,
                                            p.cross, phase);
      const float inverse = 1.0f / asd[j];
      const float scale = inverse * s.whitening;
      real[j] = strain.real * scale + noise_real[j];
      imaginary[j] = strain.imaginary * scale + noise_imaginary[j];
      inverse_asd[j] = inverse * s.asd_scale;
    }
    phases.next_chunk();
  }
}

// A stretch of the network's input [3, row]: real part, imaginary part, asd_scale / ASD.
template <int level>
DINGO_INLINE void network_input(const Projection& p, const Stretch& s, float* output) {
  Piece piece;
  for (int64_t start = 0; start < s.bins; start += kPiece) {
    const int64_t bins = std::min(kPiece, s.bins - start), position = s.position + start;
    if (s.plane == 0) {
      make_piece<level, Interleaved>(p, s, start, bins, piece);
    } else {
      make_piece<level, Products>(p, s, start, bins, piece);
    }
    const int64_t from = std::clamp<int64_t>(p.keep_from - position, 0, bins);
    const int64_t to = std::clamp<int64_t>(p.keep_to - position, from, bins);
    for (int channel = 0; channel < 3; ++channel) {
      float* numbers = piece.channels[channel];
      std::fill(numbers, numbers + from, 0.0f);
      std::fill(numbers + to, numbers + bins, 0.0f);
      stream_out(output + channel * s.row + position, numbers, bins);
    }
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

template <int level>
DINGO_INLINE void network_inputs(const Projection* p, int64_t count, const Stretch& s, float* output) {
  for (int64_t i = 0; i < count; ++i) network_input<level>(p[i], s, output + i * 3 * s.row);
}

DINGO_AVX512 void network_inputs_avx512(const Projection* p, int64_t count, const Stretch& s, float* output) {
  network_inputs<dingo::kAvx512>(p, count, s, output);
}
DINGO_AVX2 void network_inputs_avx2(const Projection* p, int64_t count, const Stretch& s, float* output) {
  network_inputs<dingo::kAvx2>(p, count, s, output);
}
void network_inputs_baseline(const Projection* p, int64_t count, const Stretch& s, float* output) {
  network_inputs<dingo::kBaseline>(p, count, s, output);
}

}  // namespace

// The phases of a delay from bin `first` on.
extern "C" void dingo_strain_begin(double turns, int64_t first, dingo::PhaseTable* phases) { phases->begin(turns, first); }

// Row i of output is the network's input for projection i, of which a stretch is written.
extern "C" void dingo_strain_network_inputs(int level, const Projection* p, int64_t count, const Stretch* s,
                                            float* output) {
  auto* run = level == 2 ? network_inputs_avx512 : level == 1 ? network_inputs_avx2 : network_inputs_baseline;
  run(p, count, *s, output);
#if defined(__SSE2__)
  // What went past the caches is seen by other threads in order.
  _mm_sfence();
#endif
}

// Row i of output is the clean strain of projection i, complex and interleaved.
extern "C" void dingo_strain_clean(const Projection* p, int64_t count, int64_t bins, float whitening, float* output) {
  for (int64_t i = 0; i < count; ++i) clean_strain(p[i], bins, whitening, output + i * 2 * bins);
}
