#pragma once
// A result's distance from the exact value, in units in the last place; and the arguments at which functions are measured.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <limits>
#include <random>
#include <vector>

namespace hindcast::tests {

/// A type in which the C library is exact enough to be the reference for T.
template <class T>
struct Wider;
template <>
struct Wider<float> {
  using Type = double;
  using Bits = uint32_t;
};
template <>
struct Wider<double> {
  using Type = long double;
  using Bits = uint64_t;
};
template <class T>
using WiderOf = typename Wider<T>::Type;

template <class T>
T from_bits(typename Wider<T>::Bits bits) {
  T value;
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}

template <class T>
typename Wider<T>::Bits to_bits(T value) {
  typename Wider<T>::Bits bits;
  std::memcpy(&bits, &value, sizeof(T));
  return bits;
}

/// 0 if both are NaN or the same infinity; infinite if only one of them is, or a zero has the wrong sign.
template <class T>
double ulps(T result, WiderOf<T> exact) {
  using Limits = std::numeric_limits<T>;
  const double wrong = std::numeric_limits<double>::infinity();
  if (std::isnan(exact) || std::isnan(result)) return std::isnan(exact) && std::isnan(result) ? 0 : wrong;
  const T rounded = static_cast<T>(exact);
  if (std::isinf(rounded) && !std::isinf(exact)) {
    // The exact value is slightly too large: the largest number is next to it.
    return std::isinf(result) || std::abs(result) == Limits::max() ? 0 : wrong;
  }
  if (std::isinf(rounded) || std::isinf(result)) return result == rounded ? 0 : wrong;
  if (exact == 0 && result == 0) return std::signbit(exact) == std::signbit(result) ? 0 : wrong;
  int exponent = exact == 0 ? Limits::min_exponent : std::ilogb(exact) + 1;
  exponent = std::max(exponent, static_cast<int>(Limits::min_exponent));
  return static_cast<double>(std::abs(result - exact) / std::ldexp(WiderOf<T>(1), exponent - Limits::digits));
}

inline bool exhaustive() {
  const char* value = std::getenv("HINDCAST_EXHAUSTIVE");
  return value != nullptr && std::strcmp(value, "1") == 0;
}

template <class T>
std::vector<T> special_values() {
  using L = std::numeric_limits<T>;
  std::vector<T> values = {T(0), L::denorm_min(), L::min(), L::epsilon(), T(0.5),   T(1),         T(2),
                           T(3), T(10),           T(88),    T(710),       L::max(), L::min() / 2, L::infinity()};
  for (T value : std::vector<T>(values)) values.push_back(std::nextafter(value, L::infinity()));
  for (T value : std::vector<T>(values)) values.push_back(std::nextafter(value, -L::infinity()));
  for (T value : std::vector<T>(values)) values.push_back(-value);
  values.push_back(L::quiet_NaN());
  return values;
}

/// Special values; every exponent with a few significands and both signs; random bits; random numbers around 1.
template <class T>
std::vector<T> many_values(size_t random_count, uint32_t seed = 20) {
  using Bits = typename Wider<T>::Bits;
  constexpr int kMantissa = std::numeric_limits<T>::digits - 1;
  std::vector<T> values = special_values<T>();
  std::mt19937_64 random(seed);
  const Bits fraction = (Bits(1) << kMantissa) - 1;
  const Bits exponents = Bits(1) << (sizeof(T) * 8 - 1 - kMantissa);
  for (Bits exponent = 0; exponent < exponents; ++exponent) {
    for (const Bits bits : {Bits(0), Bits(1), fraction, fraction / 2, static_cast<Bits>(random()) & fraction}) {
      values.push_back(from_bits<T>((exponent << kMantissa) | bits));
      values.push_back(-values.back());
    }
  }
  for (size_t i = 0; i < random_count; ++i) {
    values.push_back(from_bits<T>(static_cast<Bits>(random())));
    const T unit = static_cast<T>(random() >> 11) * static_cast<T>(0x1p-53);
    constexpr T kScales[] = {T(0.7), T(1), T(2), T(6), T(30), T(100), T(800), T(1) / 1024};
    values.push_back((2 * unit - 1) * kScales[i % std::size(kScales)]);
    values.push_back(1 + (2 * unit - 1) * kScales[i % 2] / 8);
  }
  return values;
}

template <class T>
struct Worst {
  double ulps = 0;
  T argument = 0;

  void add(T at, T result, WiderOf<T> exact) {
    const double error = tests::ulps(result, exact);
    if (error > ulps) *this = {error, at};
  }
};

}  // namespace hindcast::tests
