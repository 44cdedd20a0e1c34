#pragma once
// exp and functions based on it. All start from e^x = 2^n (1 + head + tail), |head| < 0.35, known to more digits than T has.

#include "codegen/device/polynomials.h"

namespace hindcast::device {

template <class T>
struct ExpRange;
template <>
struct ExpRange<float> {
  static constexpr float kLog2E = 0x1.715476p+0f;
  static constexpr float kLn2High = 0x1.62e43p-1f, kLn2Low = -0x1.05c61p-29f;
  static constexpr float kUnderflow = -105.0f, kOverflow = 90.0f;  // beyond, exp is 0 and infinite, sinh and cosh are infinite
  static constexpr float kAllDigits = 20.0f;                       // 1 + e^-x is 1, with digits to spare
  static constexpr float kScaleExponent = 64.0f;                   // 2 to this scales what is about to underflow to a normal number
  static constexpr float kUnscale = 0x1p-64f;
};
template <>
struct ExpRange<double> {
  static constexpr double kLog2E = 0x1.71547652b82fep+0;
  static constexpr double kLn2High = 0x1.62e42fefa39efp-1, kLn2Low = 0x1.abc9e3b39803fp-56;
  static constexpr double kUnderflow = -746.0, kOverflow = 711.0;
  static constexpr double kAllDigits = 40.0;
  static constexpr double kScaleExponent = 128.0;
  static constexpr double kUnscale = 0x1p-128;
};

template <class T>
struct ExpParts {
  T exponent;
  T head;
  T tail;
};

/// The low part of x may be large: up to an ulp of an x of some hundreds.
template <class T>
HC_DEVICE ExpParts<T> split_exp(Pair<T> x) {
  using Range = ExpRange<T>;
  const T n = exact::fma(x.high, Range::kLog2E, Float<T>::kRounder) - Float<T>::kRounder;
  const Pair<T> rough = exact_sum(exact::fma(n, -Range::kLn2High, x.high), x.low);
  const T head = exact::fma(n, -Range::kLn2Low, rough.high);
  const T head_low = exact::fma(n, -Range::kLn2Low, rough.high - head) + rough.low;
  return {n, head, exact::fma(head * head, polynomial::exp_tail(head), head_low)};
}

/// A NaN propagates to head and tail.
template <class T>
HC_DEVICE ExpParts<T> split_exp(T x) {
  using Range = ExpRange<T>;
  const T n = exact::fma(x, Range::kLog2E, Float<T>::kRounder) - Float<T>::kRounder;
  const T rough = exact::fma(n, -Range::kLn2High, x);
  const T head = exact::fma(n, -Range::kLn2Low, rough);
  const T head_low = exact::fma(n, -Range::kLn2Low, rough - head);
  return {n, head, exact::fma(head * head, polynomial::exp_tail(head), head_low)};
}

template <class T>
HC_DEVICE T clamp_for_exp(T x) {
  const T above = select(x < ExpRange<T>::kUnderflow, ExpRange<T>::kUnderflow, x);
  return select(above > ExpRange<T>::kOverflow, ExpRange<T>::kOverflow, above);
}

template <class T>
HC_DEVICE T at_most(T x, T limit) {
  return select(x > limit, limit, x);
}

/// 1 + head + tail.
template <class T>
HC_DEVICE Pair<T> fraction_of(const ExpParts<T>& parts) {
  const Pair<T> sum = ordered_sum(T(1), parts.head);
  return ordered_sum(sum.high, sum.low + parts.tail);
}

/// e^x - 1 for parts of an x of at most kAllDigits or so.
template <class T>
HC_DEVICE Pair<T> minus_one(const ExpParts<T>& parts) {
  const T power = two_to(parts.exponent);
  const Pair<T> sum = exact_sum(power - T(1), power * parts.head);
  return ordered_sum(sum.high, sum.low + power * parts.tail);
}

template <class T>
HC_FUNCTOR T exp(T x) {
  const ExpParts<T> parts = split_exp(clamp_for_exp(x));
  return times_two_to(T(1) + (parts.head + parts.tail), parts.exponent);
}

template <class T>
HC_FUNCTOR T exp2(T x) {
  using Range = ExpRange<T>;
  const T limit = Float<T>::kBias + T(2) * Float<T>::kMantissa;
  const T clamped = at_most(select(x < -limit, -limit, x), limit);
  const T n = (clamped + Float<T>::kRounder) - Float<T>::kRounder;
  const Pair<T> rest = exact_product(clamped - n, Range::kLn2High);
  const T low = exact::fma(clamped - n, Range::kLn2Low, rest.low);
  const T tail = exact::fma(rest.high * rest.high, polynomial::exp_tail(rest.high), low);
  return times_two_to(T(1) + (rest.high + tail), n);
}

template <class T>
HC_FUNCTOR T expm1(T x) {
  const T low_limit = T(-2) * ExpRange<T>::kAllDigits;
  const T clamped = at_most(select(x < low_limit, low_limit, x), ExpRange<T>::kOverflow);
  const ExpParts<T> parts = split_exp(clamped);
  // The largest results need 2^128 (2^1024), which a float cannot hold: half the exponent, twice.
  const T exponent = at_most(parts.exponent, Float<T>::kMaxExponent);
  const T beyond = parts.exponent - exponent;
  const T twice = select(beyond > T(1), infinity<T>(), T(1) + beyond);
  const T result = minus_one(ExpParts<T>{exponent, parts.head, parts.tail}).high * twice;
  return select(x == T(0), x, result);
}

/// Computes sigmoid(-|x|) first: for positive x the result is 1 minus that, which is at most 1/2.
template <class T>
HC_FUNCTOR T sigmoid(T x) {
  using Range = ExpRange<T>;
  constexpr T kRounder = Float<T>::kRounder + Float<T>::kBias + Range::kScaleExponent;
  const T below = -magnitude_of(x);
  const ExpParts<T> parts = split_exp(select(below < Range::kUnderflow, Range::kUnderflow, below));
  const Pair<T> fraction = ordered_sum(T(1), parts.head + parts.tail);
  const T scaled_power = bit_cast<T>(bits_of(parts.exponent + kRounder) << Float<T>::kMantissa);
  const T power = scaled_power * Range::kUnscale;
  const Pair<T> sum = ordered_sum(T(1), power * fraction.high);
  const T ratio = quotient(fraction, Pair<T>{sum.high, exact::fma(power, fraction.low, sum.low)});
  const T negative = ratio * scaled_power * Range::kUnscale;
  return select(x > T(0), T(1) - negative, negative);
}

/// (e^2|x| - 1) / (e^2|x| + 1). The exponent is not negative, so the terms of both sums are in order: they take half as many operations as
/// minus_one() and exact_sum().
template <class T>
HC_FUNCTOR T tanh(T x) {
  const ExpParts<T> parts = split_exp(at_most(T(2) * magnitude_of(x), T(2) * ExpRange<T>::kAllDigits));
  const T power = two_to(parts.exponent);
  const Pair<T> fraction = ordered_sum(parts.head, parts.tail);
  const Pair<T> grown = ordered_sum(power - T(1), power * fraction.high);
  const T grown_low = exact::fma(power, fraction.low, grown.low);
  const T sum = grown.high + T(2);
  const T sum_low = (grown.high - (sum - T(2))) + grown_low;  // sum - 2 is exact until the result is 1
  return with_sign_of(quotient(Pair<T>{grown.high, grown_low}, Pair<T>{sum, sum_low}), x);
}

template <class T>
HC_FUNCTOR T sinh(T x) {
  const ExpParts<T> parts = split_exp(at_most(magnitude_of(x), ExpRange<T>::kOverflow));
  const Pair<T> fraction = fraction_of(parts);
  const T large = times_two_to(fraction.high, parts.exponent - T(1));
  const bool is_large = parts.exponent > ExpRange<T>::kAllDigits;
  // With g = e^x - 1: sinh(x) = (g + g / (g + 1)) / 2.
  const Pair<T> grown = minus_one(ExpParts<T>{at_most(parts.exponent, ExpRange<T>::kAllDigits), parts.head, parts.tail});
  const Pair<T> sum = exact_sum(grown.high, T(1));
  const T small = grown.high + (quotient(grown, Pair<T>{sum.high, sum.low + grown.low}) + grown.low);
  return with_sign_of(select(is_large, large, T(0.5) * small), x);
}

template <class T>
HC_FUNCTOR T cosh(T x) {
  const ExpParts<T> parts = split_exp(at_most(magnitude_of(x), ExpRange<T>::kOverflow));
  const Pair<T> fraction = fraction_of(parts);
  const T large = times_two_to(fraction.high, parts.exponent - T(1));
  const bool is_large = parts.exponent > ExpRange<T>::kAllDigits;
  const T power = two_to(at_most(parts.exponent, ExpRange<T>::kAllDigits));
  const T grown = power * fraction.high;
  const T small = T(0.5) * (grown + (power * fraction.low + T(1) / grown));
  return select(is_large, large, small);
}

}  // namespace hindcast::device
