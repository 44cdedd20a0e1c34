#pragma once
// Building blocks of the functions of math.h: the layout of floats, exactly rounded operations, and pairs of floats that together hold
// twice the digits.

#include "codegen/device/types.h"

namespace hindcast::device {

template <class T>
struct Float;

template <>
struct Float<float> {
  using Bits = uint32;
  static constexpr int kMantissa = 23;
  static constexpr float kBias = 127.0f;
  static constexpr float kMaxExponent = 127.0f;
  static constexpr Bits kSign = 0x80000000u;
  static constexpr Bits kFraction = 0x007fffffu;
  static constexpr Bits kOne = 0x3f800000u;
  static constexpr Bits kSqrtHalf = 0x3f3504f3u;
  static constexpr Bits kInfinity = 0x7f800000u;
  static constexpr Bits kNan = 0x7fc00000u;
  static constexpr float kOneUlpIsOne = 0x1p23f;
  static constexpr float kRounder = 0x1.8p23f;
  static constexpr float kSmallestNormal = 0x1p-126f;
};

template <>
struct Float<double> {
  using Bits = uint64;
  static constexpr int kMantissa = 52;
  static constexpr double kBias = 1023.0;
  static constexpr double kMaxExponent = 1023.0;
  static constexpr Bits kSign = 0x8000000000000000u;
  static constexpr Bits kFraction = 0x000fffffffffffffu;
  static constexpr Bits kOne = 0x3ff0000000000000u;
  static constexpr Bits kSqrtHalf = 0x3fe6a09e667f3bcdu;
  static constexpr Bits kInfinity = 0x7ff0000000000000u;
  static constexpr Bits kNan = 0x7ff8000000000000u;
  static constexpr double kOneUlpIsOne = 0x1p52;
  static constexpr double kRounder = 0x1.8p52;
  static constexpr double kSmallestNormal = 0x1p-1022;
};

template <class T>
HC_DEVICE typename Float<T>::Bits bits_of(T value) {
  return bit_cast<typename Float<T>::Bits>(value);
}
template <class T>
HC_DEVICE T infinity() {
  return bit_cast<T>(Float<T>::kInfinity);
}
template <class T>
HC_DEVICE T nan() {
  return bit_cast<T>(Float<T>::kNan);
}
template <class T>
HC_DEVICE T magnitude_of(T value) {
  return bit_cast<T>(bits_of(value) & ~Float<T>::kSign);
}
template <class T>
HC_DEVICE T with_sign_of(T value, T sign) {
  return bit_cast<T>((bits_of(value) & ~Float<T>::kSign) | (bits_of(sign) & Float<T>::kSign));
}

/// Operations that hardware rounds once. `multiply` is never contracted with an addition; NVRTC contracts `*`.
namespace exact {
#if HC_CUDA
HC_DEVICE float fma(float a, float b, float c) { return ::fmaf(a, b, c); }
HC_DEVICE double fma(double a, double b, double c) { return ::fma(a, b, c); }
HC_DEVICE float multiply(float a, float b) { return ::__fmul_rn(a, b); }
HC_DEVICE double multiply(double a, double b) { return ::__dmul_rn(a, b); }
HC_DEVICE float sqrt(float a) { return ::__fsqrt_rn(a); }
HC_DEVICE double sqrt(double a) { return ::__dsqrt_rn(a); }
HC_DEVICE float floor(float a) { return ::floorf(a); }
HC_DEVICE double floor(double a) { return ::floor(a); }
HC_DEVICE float ceil(float a) { return ::ceilf(a); }
HC_DEVICE double ceil(double a) { return ::ceil(a); }
HC_DEVICE float trunc(float a) { return ::truncf(a); }
HC_DEVICE double trunc(double a) { return ::trunc(a); }
HC_DEVICE float round(float a) { return ::rintf(a); }
HC_DEVICE double round(double a) { return ::rint(a); }
#else
HC_DEVICE float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
HC_DEVICE double fma(double a, double b, double c) { return __builtin_fma(a, b, c); }
HC_DEVICE float multiply(float a, float b) { return a * b; }
HC_DEVICE double multiply(double a, double b) { return a * b; }
HC_DEVICE float sqrt(float a) { return __builtin_sqrtf(a); }
HC_DEVICE double sqrt(double a) { return __builtin_sqrt(a); }
HC_DEVICE float floor(float a) { return __builtin_floorf(a); }
HC_DEVICE double floor(double a) { return __builtin_floor(a); }
HC_DEVICE float ceil(float a) { return __builtin_ceilf(a); }
HC_DEVICE double ceil(double a) { return __builtin_ceil(a); }
HC_DEVICE float trunc(float a) { return __builtin_truncf(a); }
HC_DEVICE double trunc(double a) { return __builtin_trunc(a); }
HC_DEVICE float round(float a) { return __builtin_rintf(a); }
HC_DEVICE double round(double a) { return __builtin_rint(a); }
#endif
}  // namespace exact

/// high + low, with low at most half an ulp of high.
template <class T>
struct Pair {
  T high;
  T low;
};

/// a + b without error, if |a| >= |b| or a == 0.
template <class T>
HC_DEVICE Pair<T> ordered_sum(T a, T b) {
  const T high = a + b;
  return {high, b - (high - a)};
}

/// a + b without error.
template <class T>
HC_DEVICE Pair<T> exact_sum(T a, T b) {
  const T high = a + b;
  const T b_part = high - a;
  return {high, (a - (high - b_part)) + (b - b_part)};
}

/// a * b without error.
template <class T>
HC_DEVICE Pair<T> exact_product(T a, T b) {
  const T high = exact::multiply(a, b);
  return {high, exact::fma(a, b, -high)};
}

template <class T>
HC_DEVICE Pair<T> product(Pair<T> a, Pair<T> b) {
  const Pair<T> high = exact_product(a.high, b.high);
  return {high.high, high.low + exact::fma(a.high, b.low, a.low * b.high)};
}

/// a / b, correctly rounded but for a few hundredths of an ulp.
template <class T>
HC_DEVICE T quotient(Pair<T> a, Pair<T> b) {
  const T inverse = T(1) / b.high;
  const T estimate = exact::multiply(a.high, inverse);
  const T rest = exact::fma(-estimate, b.high, a.high) + exact::fma(-estimate, b.low, a.low);
  return exact::fma(rest, inverse, estimate);
}

/// 2^n for an integer n that a normal number's exponent can hold.
template <class T>
HC_DEVICE T two_to(T n) {
  return bit_cast<T>(bits_of(n + (Float<T>::kRounder + Float<T>::kBias)) << Float<T>::kMantissa);
}

/// value * 2^n for a value near one: rounded once, also if the result is subnormal or too large.
template <class T>
HC_DEVICE T times_two_to(T value, T n) {
  // Two factors, as 2^n may be no normal number. The second exponent is a difference of integers, whose low bits alone count.
  constexpr T kFirst = Float<T>::kRounder + Float<T>::kBias, kBoth = kFirst + Float<T>::kBias;
  const auto first = bits_of(exact::fma(n, T(0.5), kFirst)), second = bits_of(n + kBoth) - first;
  return value * bit_cast<T>(first << Float<T>::kMantissa) * bit_cast<T>(second << Float<T>::kMantissa);
}

template <class T>
HC_DEVICE T horner(T, T constant) {
  return constant;
}
/// constant + x * (next + x * (...)).
template <class T, class... Rest>
HC_DEVICE T horner(T x, T constant, T next, Rest... rest) {
  return exact::fma(horner(x, next, rest...), x, constant);
}

template <class T>
HC_DEVICE T horner_by_pairs(T, T, T constant) {
  return constant;
}
template <class T>
HC_DEVICE T horner_by_pairs(T x, T, T constant, T next) {
  return exact::fma(next, x, constant);
}
/// Like horner, in steps of two powers of x: only half as many operations depend on one another.
template <class T, class... Rest>
HC_DEVICE T horner_by_pairs(T x, T square, T constant, T next, Rest... rest) {
  return exact::fma(horner_by_pairs(x, square, rest...), square, exact::fma(next, x, constant));
}

}  // namespace hindcast::device
