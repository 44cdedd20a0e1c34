#pragma once
// CUDA's qualifiers, the indices of threads and blocks, and the barrier.

#include "calls.h"

// Compiled only if called, as HC_EMULATOR_ENTRY does. Not inlined into its caller, which is not instrumented.
#define __global__ inline __attribute__((noinline))
#define __device__
#define __host__
// thread_local: the linker then reports the name, the place and the size of each array. constinit: without an initialising function. Not
// `static`, which would contradict `extern __shared__`.
#define __shared__ constinit thread_local
#define __constant__ const
#define __restrict__ __restrict
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))
// For accesses that must not count as the kernel's.
#define HC_EMULATOR_UNCHECKED __attribute__((no_sanitize("thread"), noinline, unused))

using uint3 = hindcast_emulator::Index;
struct dim3 {
  unsigned x = 1, y = 1, z = 1;
};

extern "C" {
// Constant per thread, so a value kept across a barrier stays right.
extern const uint3 threadIdx, blockIdx, blockDim, gridDim;
const hindcast_emulator::Calls* hindcast_emulator_calls();
}
inline constexpr int warpSize = 32;

/// Line numbers distinguish barriers: a return address would change where GCC unrolls a loop.
__forceinline__ void __syncthreads(int line = __builtin_LINE()) { hindcast_emulator_calls()->barrier(line); }
// The emulator does not count fences as order: it requires two launches instead.
__forceinline__ void __threadfence() {}
__forceinline__ void __threadfence_block() {}

namespace hindcast_emulator {

template <unsigned long... kPositions>
struct Positions {};

template <class... Arguments, unsigned long... kPositions>
HC_EMULATOR_UNCHECKED void call_at(void (*kernel)(Arguments...), void** arguments, Positions<kPositions...>) {
  kernel(*static_cast<Arguments*>(arguments[kPositions])...);
}

/// Calls a kernel with cuLaunchKernel's argument array.
template <class... Arguments>
HC_EMULATOR_UNCHECKED void call(void (*kernel)(Arguments...), void** arguments) {
  call_at(kernel, arguments, Positions<__integer_pack(sizeof...(Arguments))...>());
}

}  // namespace hindcast_emulator

/// Comes after a kernel's text.
#define HC_EMULATOR_ENTRY(kernel)                                                                                                   \
  extern "C" __attribute__((visibility("default"))) HC_EMULATOR_UNCHECKED void hindcast_emulator_entry_##kernel(void** arguments) { \
    hindcast_emulator::call(&kernel, arguments);                                                                                    \
  }
