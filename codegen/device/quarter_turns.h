#pragma once
// How many quarter turns an angle is, less whole turns, for doubles of any size: by integers, since the part that counts may be 2^-1085
// of the product. No branches and no 128-bit integers, so that loops become vector code.

#include "codegen/device/floats.h"

namespace hindcast::device {

/// high * 2^64 + low.
struct WideInteger {
  uint64 high;
  uint64 low;
};

/// a * b, of halves, as vectors have no other product.
HC_DEVICE WideInteger wide_product(uint64 a, uint64 b) {
  constexpr uint64 kHalf = 0xffffffffu;
  const uint64 a_low = a & kHalf, a_high = a >> 32, b_low = b & kHalf, b_high = b >> 32;
  const uint64 low = a_low * b_low;
  const uint64 middle = (low >> 32) + a_high * b_low;
  const uint64 rest = (middle & kHalf) + a_low * b_high;
  return {a_high * b_high + (middle >> 32) + (rest >> 32), (rest << 32) | (low & kHalf)};
}

/// 64 binary digits, from `place` on, of 64 zeros and then those of 2 / pi behind the point (mpmath, with 3,000 bits).
HC_DEVICE uint64 digits_of_two_over_pi(uint64 place) {
  static constexpr uint64 kDigits[] = {
      0x0000000000000000u, 0xa2f9836e4e441529u, 0xfc2757d1f534ddc0u, 0xdb6295993c439041u, 0xfe5163abdebbc561u,
      0xb7246e3a424dd2e0u, 0x06492eea09d1921cu, 0xfe1deb1cb129a73eu, 0xe88235f52ebb4484u, 0xe99c7026b45f7e41u,
      0x3991d639835339f4u, 0x9c845f8bbdf9283bu, 0x1ff897ffde05980fu, 0xef2f118b5a0a6d1fu, 0x6d367ecf27cb09b7u,
      0x4f463f669e5fea2du, 0x7527bac7ebe5f17bu, 0x3d0739f78a5292eau, 0x6bfb5fb11f8d5d08u, 0x56033046fc7b6babu,
  };
  const uint64 word = place >> 6, shift = place & 63;
  return (kDigits[word] << shift) | (kDigits[word + 1] >> 1 >> (63 - shift));
}

/// size * 2 / pi modulo 4, in units of 2^-126, for size from 1/2 on. It lies less than two units below the exact value, and no double is
/// closer than 2^64 units to a whole number.
HC_DEVICE WideInteger quarter_turns_of(double size) {
  const uint64 bits = bits_of(size);
  const uint64 significand = (bits & Float<double>::kFraction) | (Float<double>::kFraction + 1);
  // Digits before this one give multiples of 4, even with the lowest one of the significand.
  const uint64 place = (bits >> 52) - 1013;
  const uint64 first = digits_of_two_over_pi(place) * significand;
  const WideInteger second = wide_product(significand, digits_of_two_over_pi(place + 64));
  const uint64 low = second.low + wide_product(significand, digits_of_two_over_pi(place + 128)).high;
  return {first + second.high + (low < second.low ? 1u : 0u), low};
}

}  // namespace hindcast::device
