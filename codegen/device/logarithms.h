#pragma once
// Logarithms and pow. All start from x = 2^k (1 + f), with 1 + f between the square roots of 1/2 and 2, and from
// s = f / (2 + f), for which log(1 + f) = log((1 + s) / (1 - s)) has an odd power series that converges fast.

#include "codegen/device/exponentials.h"

namespace hindcast::device {

template <class T>
struct LogConstants;
template <>
struct LogConstants<float> {
  static constexpr float kLog2EHigh = 0x1.715476p+0f, kLog2ELow = 0x1.4ae0cp-26f;
  static constexpr float kLog10EHigh = 0x1.bcb7b2p-2f, kLog10ELow = -0x1.5b235ep-27f;
  static constexpr float kLog10Of2High = 0x1.344136p-2f, kLog10Of2Low = -0x1.ec10cp-27f;
  static constexpr float kTwoThirdsHigh = 0x1.555556p-1f, kTwoThirdsLow = -0x1.555556p-26f;
};
template <>
struct LogConstants<double> {
  static constexpr double kLog2EHigh = 0x1.71547652b82fep+0, kLog2ELow = 0x1.777d0ffda0d24p-56;
  static constexpr double kLog10EHigh = 0x1.bcb7b1526e50ep-2, kLog10ELow = 0x1.95355baaafad3p-57;
  static constexpr double kLog10Of2High = 0x1.34413509f79ffp-2, kLog10Of2Low = -0x1.9dc1da994fd21p-59;
  static constexpr double kTwoThirdsHigh = 0x1.5555555555555p-1, kTwoThirdsLow = 0x1.5555555555555p-55;
};

template <class T>
struct LogParts {
  T exponent;
  T fraction;  // f
};

/// For a positive normal number; the result for others is unspecified.
template <class T>
HC_DEVICE LogParts<T> split_normal(T x) {
  using F = Float<T>;
  const typename F::Bits shifted = bits_of(x) - F::kSqrtHalf + F::kOne;
  // Converts an integer to a float by bits: vectors of 64-bit integers have no conversion before AVX-512.
  const T biased = bit_cast<T>((shifted >> F::kMantissa) + bits_of(F::kOneUlpIsOne));
  const T significand = bit_cast<T>((shifted & F::kFraction) + F::kSqrtHalf);
  return {biased - (F::kOneUlpIsOne + F::kBias), significand - T(1)};
}

template <class T>
HC_DEVICE LogParts<T> split_log(T x) {
  const bool subnormal = x < Float<T>::kSmallestNormal;
  const LogParts<T> parts = split_normal(select(subnormal, x * Float<T>::kOneUlpIsOne, x));
  return {parts.exponent - select(subnormal, T(Float<T>::kMantissa), T(0)), parts.fraction};
}

/// log(2^k (1 + f)) + low.
template <class T>
HC_DEVICE T log_of_parts(const LogParts<T>& parts, T low) {
  const T f = parts.fraction;
  const T s = f / (T(2) + f);
  const T z = s * s;
  const T half_square = T(0.5) * f * f;
  const T tail = exact::fma(s, exact::fma(z, polynomial::log_tail(z), half_square), exact::fma(parts.exponent, ExpRange<T>::kLn2Low, low));
  return exact::fma(parts.exponent, ExpRange<T>::kLn2High, f - (half_square - tail));
}

/// The cases in which x is not a positive number.
template <class T>
HC_DEVICE T log_or_special(T x, T result) {
  const T not_negative = select(x < T(0), nan<T>(), result);
  const T finite = select(x == T(0), -infinity<T>(), not_negative);
  return select(x < infinity<T>(), finite, x);
}

template <class T>
HC_FUNCTOR T log(T x) {
  return log_or_special(x, log_of_parts(split_log(x), T(0)));
}

template <class T>
HC_FUNCTOR T log1p(T x) {
  const Pair<T> sum = exact_sum(T(1), x);
  const LogParts<T> parts = split_normal(sum.high);
  const T low = sum.low * two_to(-at_most(parts.exponent, T(100)));
  const Pair<T> fraction = ordered_sum(parts.fraction, low);
  const T result = log_of_parts(LogParts<T>{parts.exponent, fraction.high}, fraction.low);
  return select(x == T(0), x, log_or_special(sum.high, result));
}

/// log(1 + f) to more digits than T has, but not to twice as many.
template <class T>
HC_DEVICE Pair<T> log_of_fraction(T f) {
  const T s = f / (T(2) + f);
  const T z = s * s;
  const Pair<T> square = exact_product(T(0.5) * f, f);
  const Pair<T> start = ordered_sum(f, -square.high);
  const T tail = s * exact::fma(z, polynomial::log_tail(z), square.high);
  return ordered_sum(start.high, start.low + (tail - square.low));
}

template <class T>
HC_FUNCTOR T log2(T x) {
  using C = LogConstants<T>;
  const LogParts<T> parts = split_log(x);
  const Pair<T> scaled = product(log_of_fraction(parts.fraction), Pair<T>{C::kLog2EHigh, C::kLog2ELow});
  const Pair<T> sum = ordered_sum(parts.exponent, scaled.high);
  return log_or_special(x, sum.high + (sum.low + scaled.low));
}

template <class T>
HC_FUNCTOR T log10(T x) {
  using C = LogConstants<T>;
  const LogParts<T> parts = split_log(x);
  const Pair<T> scaled = product(log_of_fraction(parts.fraction), Pair<T>{C::kLog10EHigh, C::kLog10ELow});
  const Pair<T> whole = product(Pair<T>{parts.exponent, T(0)}, Pair<T>{C::kLog10Of2High, C::kLog10Of2Low});
  const Pair<T> sum = ordered_sum(whole.high, scaled.high);
  return log_or_special(x, sum.high + (sum.low + (scaled.low + whole.low)));
}

/// log(2^k (1 + f)) to nearly twice the digits of T.
template <class T>
HC_DEVICE Pair<T> log_pair(const LogParts<T>& parts) {
  using C = LogConstants<T>;
  const T f = parts.fraction;
  const Pair<T> denominator = ordered_sum(T(2), f);
  const T inverse = T(1) / denominator.high;
  const T s_high = exact::multiply(f, inverse);
  const Pair<T> s = {s_high, inverse * (exact::fma(-s_high, denominator.high, f) - s_high * denominator.low)};
  const Pair<T> z = product(s, s);
  const T second = polynomial::log_second_tail(z.high);
  const Pair<T> second_term = product(z, Pair<T>{second, T(0)});
  const Pair<T> sum = ordered_sum(C::kTwoThirdsHigh, second_term.high);
  const Pair<T> cubic = product(product(s, z), Pair<T>{sum.high, sum.low + (second_term.low + C::kTwoThirdsLow)});
  const Pair<T> fraction = ordered_sum(T(2) * s.high, cubic.high);
  const Pair<T> whole = product(Pair<T>{parts.exponent, T(0)}, Pair<T>{ExpRange<T>::kLn2High, ExpRange<T>::kLn2Low});
  const Pair<T> total = ordered_sum(whole.high, fraction.high);
  return ordered_sum(total.high, total.low + (whole.low + (fraction.low + (T(2) * s.low + cubic.low))));
}

template <class T>
HC_FUNCTOR T pow(T base, T exponent) {
  const T size = magnitude_of(base);
  const Pair<T> log = log_pair(split_log(size));
  const bool is_limit = size == T(0) || size == infinity<T>();
  const T log_high = select(size == T(0), -infinity<T>(), select(size == infinity<T>(), infinity<T>(), log.high));
  const Pair<T> unbounded = exact_product(exponent, log_high);
  const T bounded = clamp_for_exp(unbounded.high);
  const bool inside = bounded == unbounded.high && !is_limit;
  const T low = select(inside, exact::fma(exponent, log.low, unbounded.low), T(0));
  const ExpParts<T> parts = split_exp(Pair<T>{bounded, low});
  const T power = times_two_to(fraction_of(parts).high, parts.exponent);

  const bool whole = exact::trunc(exponent) == exponent;
  const bool odd = whole && exact::trunc(exponent * T(0.5)) * T(2) != exponent;
  const T negated = bit_cast<T>(bits_of(power) ^ (bits_of(base) & Float<T>::kSign));
  const T with_sign = select(odd, negated, power);
  const T real = select(base < T(0) && !whole && size < infinity<T>(), nan<T>(), with_sign);
  const T known = select(base != base || exponent != exponent, base + exponent, real);
  const bool is_one = exponent == T(0) || base == T(1) || (size == T(1) && magnitude_of(exponent) == infinity<T>());
  return select(is_one, T(1), known);
}

/// x log(y): 0 if x is 0, but NaN if y is NaN.
template <class T>
HC_FUNCTOR T xlogy(T x, T y) {
  return select((x == T(0)) & (y == y), T(0), x * log(y));
}
/// x log(1 + y), with the same rules.
template <class T>
HC_FUNCTOR T xlog1py(T x, T y) {
  return select((x == T(0)) & (y == y), T(0), x * log1p(y));
}

}  // namespace hindcast::device
