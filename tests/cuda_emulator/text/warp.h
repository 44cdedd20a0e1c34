#pragma once
// Operations of the threads of a warp: barriers, shuffles, votes.

#include "qualifiers.h"

namespace hindcast_emulator {

__forceinline__ int lane() { return (threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) % 32; }

/// From `source` in its part of the warp. A source outside of the part returns the lane's own value.
template <class T>
__forceinline__ T shuffle(unsigned mask, T value, int source, bool inside, int line) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8, "what registers hold");
  if constexpr (sizeof(T) == 4) {
    const unsigned long long bits = __builtin_bit_cast(unsigned, value);
    return __builtin_bit_cast(T, static_cast<unsigned>(hindcast_emulator_calls()->shuffle(mask, bits, inside ? source : lane(), line)));
  } else {
    const auto bits = __builtin_bit_cast(unsigned long long, value);
    return __builtin_bit_cast(T, hindcast_emulator_calls()->shuffle(mask, bits, inside ? source : lane(), line));
  }
}

}  // namespace hindcast_emulator

template <class T>
__forceinline__ T __shfl_sync(unsigned mask, T value, int source, int width = 32, int line = __builtin_LINE()) {
  const int start = hindcast_emulator::lane() & ~(width - 1);
  return hindcast_emulator::shuffle(mask, value, start + (source & (width - 1)), true, line);
}
template <class T>
__forceinline__ T __shfl_up_sync(unsigned mask, T value, unsigned distance, int width = 32, int line = __builtin_LINE()) {
  const int source = hindcast_emulator::lane() - static_cast<int>(distance), start = hindcast_emulator::lane() & ~(width - 1);
  return hindcast_emulator::shuffle(mask, value, source, source >= start, line);
}
template <class T>
__forceinline__ T __shfl_down_sync(unsigned mask, T value, unsigned distance, int width = 32, int line = __builtin_LINE()) {
  const int source = hindcast_emulator::lane() + static_cast<int>(distance), start = hindcast_emulator::lane() & ~(width - 1);
  return hindcast_emulator::shuffle(mask, value, source, source < start + width, line);
}
template <class T>
__forceinline__ T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32, int line = __builtin_LINE()) {
  const int source = hindcast_emulator::lane() ^ bits, start = hindcast_emulator::lane() & ~(width - 1);
  return hindcast_emulator::shuffle(mask, value, source, source < start + width, line);
}

__forceinline__ void __syncwarp(unsigned mask = 0xffffffffu, int line = __builtin_LINE()) {
  hindcast_emulator_calls()->sync_warp(mask, line);
}
__forceinline__ unsigned __ballot_sync(unsigned mask, int predicate, int line = __builtin_LINE()) {
  return hindcast_emulator_calls()->ballot(mask, predicate != 0, line);
}
__forceinline__ int __any_sync(unsigned mask, int predicate, int line = __builtin_LINE()) {
  return hindcast_emulator_calls()->ballot(mask, predicate != 0, line) != 0;
}
__forceinline__ int __all_sync(unsigned mask, int predicate, int line = __builtin_LINE()) {
  return hindcast_emulator_calls()->ballot(mask, predicate == 0, line) == 0;
}
