#pragma once
// Locates a thread's element: division by sizes that are known when a kernel is launched, and arguments in words of 8 bytes. Both sides of
// a launch include this header.

#include "codegen/device/types.h"

namespace hindcast::device {

inline constexpr int kThreads = 256;           // of a block
inline constexpr int kMostThreadsOfRow = 512;  // of a block of long rows
inline constexpr int kMostLoops = 8;           // around an element: a domain has no more axes
inline constexpr int kNumberBytes = 32;        // of a number of a row that is not done: a pair of float64
inline constexpr int kTile = 32;               // elements of a tile's side
inline constexpr int kTileRows = 8;            // rows of a tile that a block's threads have at a time

/// The length of an array that may be empty.
template <int kCount>
inline constexpr int kAtLeastOne = kCount < 1 ? 1 : kCount;

/// Divides numbers below 2^31 by `divisor` with a product and a shift (Granlund and Montgomery, Division by Invariant Integers using
/// Multiplication), if the divisor is below 2^31 too; other numbers directly. Two words of 8 bytes.
struct Divider {
  int64 divisor;
  uint32 magic, shift;
};

HC_DEVICE Divider divider_of(int64 divisor) {
  uint32 shift = 0;
  while (shift < 31 && (int64(1) << shift) < divisor) ++shift;
  const uint64 magic = divisor >> 31 != 0 ? 0 : (((uint64(1) << shift) - uint64(divisor)) << 32) / uint64(divisor) + 1;
  return {divisor, static_cast<uint32>(magic), shift};
}

HC_DEVICE uint32 divide(uint32 number, const Divider& by) {
  const uint32 high = static_cast<uint32>((uint64(number) * by.magic) >> 32);
  return (high + number) >> by.shift;
}
/// For any number.
HC_DEVICE int64 divide(int64 number, const Divider& by) {
  return (number | by.divisor) >> 31 == 0 ? int64(divide(static_cast<uint32>(number), by)) : number / by.divisor;
}

/// A scalar argument is a number in the first bytes of its word.
template <class T>
struct Scalar {
  static HC_DEVICE_MEMBER T of(uint64 word) {
    if constexpr (sizeof(T) == 4) {
      return bit_cast<T>(static_cast<uint32>(word));
    } else {
      return bit_cast<T>(word);
    }
  }
};

}  // namespace hindcast::device
