#pragma once
// int64 arithmetic as the machine does it: sums and products wrap instead of being undefined, and division rounds toward zero. A symbolic
// size at new values must equal what the stock engine computes with plain ints.

#include <cstdint>
#include <optional>

namespace hindcast::capture {

inline int64_t wrapping_add(int64_t a, int64_t b) { return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b)); }

inline int64_t wrapping_mul(int64_t a, int64_t b) { return static_cast<int64_t>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b)); }

inline int64_t wrapping_neg(int64_t a) { return static_cast<int64_t>(0 - static_cast<uint64_t>(a)); }

/// nullopt for a division by zero.
inline std::optional<int64_t> quotient(int64_t a, int64_t b) {
  if (b == 0) return std::nullopt;
  return b == -1 ? wrapping_neg(a) : a / b;  // the lowest int64 over -1 would trap
}

inline std::optional<int64_t> remainder(int64_t a, int64_t b) {
  if (b == 0) return std::nullopt;
  return b == -1 ? 0 : a % b;
}

/// nullopt for NaN and for a value that int64 cannot hold.
inline std::optional<int64_t> whole(double value) {
  constexpr double kLimit = 9223372036854775808.0;  // 2^63
  if (!(value >= -kLimit && value < kLimit)) return std::nullopt;
  return static_cast<int64_t>(value);
}

}  // namespace hindcast::capture
