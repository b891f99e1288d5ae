// Marks functions whose arithmetic the host compiler and nvcc share, and names the instruction sets they are built for.
#pragma once

#if defined(__CUDACC__)
#define DINGO_INLINE __host__ __device__ __forceinline__
#else
#define DINGO_INLINE inline __attribute__((always_inline))
#endif

// A loop driver is compiled once per instruction set; the caller chooses one that the processor has. Everything below a
// driver is inlined into it. Without contraction into fused multiply-adds (build.rs) all of them round alike.
#if defined(__x86_64__) && defined(__GNUC__)
#define DINGO_AVX2 __attribute__((target("avx2,fma")))
#if defined(__clang__)
#define DINGO_AVX512 __attribute__((target("fma,avx512f,avx512dq,avx512bw,avx512vl")))
#else
#define DINGO_AVX512 __attribute__((target("fma,avx512f,avx512dq,avx512bw,avx512vl,prefer-vector-width=512")))
#endif
#else
#define DINGO_AVX2
#define DINGO_AVX512
#endif

// The iterations of the loop that follows touch different memory, so that it may be vectorized without run-time checks.
#if defined(__clang__)
#define DINGO_INDEPENDENT_ITERATIONS _Pragma("clang loop vectorize(assume_safety)")
#elif defined(__GNUC__)
#define DINGO_INDEPENDENT_ITERATIONS _Pragma("GCC ivdep")
#else
#define DINGO_INDEPENDENT_ITERATIONS
#endif

// Asks for the cache line at `address`, which may lie beyond the memory's end. Streams from memory gain by it: the
// hardware's own prefetching stops at each page of 4 kB.
#if defined(__CUDACC__)
#define DINGO_PREFETCH(address)
#elif defined(__GNUC__)
#define DINGO_PREFETCH(address) __builtin_prefetch(address)
#else
#define DINGO_PREFETCH(address)
#endif
