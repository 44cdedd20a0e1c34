#pragma once
// Random numbers as a function of their position: any kernel, in any order and on any number of threads, generates the same ones, and a
// backward regenerates those of its forward.

#include "codegen/device/types.h"

namespace hindcast::device {

inline constexpr int kPhiloxRounds = 7;

/// The two numbers that Philox generates at once.
struct PhiloxPair {
  uint32 left, right;
};

/// Philox2x32 (Salmon et al., Parallel Random Numbers: As Easy as 1, 2, 3), of the counter (`pair`, `row`). Seven rounds are the fewest
/// whose numbers pass BigCrush. The key has 32 bits; what the seed has beyond them says at which row the counting starts.
HC_DEVICE PhiloxPair philox_pair(int64 seed, int32 row, uint32 pair) {
  uint32 key = static_cast<uint32>(seed);
#if HC_CUDA
  uint32 left = pair, right = static_cast<uint32>(row) + static_cast<uint32>(static_cast<uint64>(seed) >> 32);
#pragma unroll
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const uint32 high = __umulhi(0xD256D193U, left), low = 0xD256D193U * left;
    left = high ^ key ^ right;
    right = low;
    key += 0x9E3779B9U;
  }
#else
  // In halves of 64 bits: the vector product of these is one instruction. Bits above the lower half are never read.
  uint64 left = pair;
  uint64 right = static_cast<uint32>(row) + static_cast<uint32>(static_cast<uint64>(seed) >> 32);
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const uint64 product = uint64(0xD256D193U) * (left & 0xFFFFFFFFU);
    left = (product >> 32) ^ (key ^ right);
    right = product;
    key += 0x9E3779B9U;
  }
#endif
  return {static_cast<uint32>(left), static_cast<uint32>(right)};
}

/// The number of a column: two neighbours share a pair, which a compiler that sees both computes once.
HC_DEVICE uint32 philox(int64 seed, int32 row, int32 column) {
  const PhiloxPair numbers = philox_pair(seed, row, static_cast<uint32>(column) >> 1);
  return (column & 1) != 0 ? numbers.right : numbers.left;
}

/// `value`, or 0. `threshold` out of 2^24 numbers give the value: both are exact in any T.
template <class T>
HC_FUNCTOR T philox_bernoulli(int64 seed, int32 row, int32 column, T threshold, T value) {
  return philox(seed, row, column) >> 8 < static_cast<uint32>(static_cast<int32>(threshold)) ? value : T(0);
}

}  // namespace hindcast::device
