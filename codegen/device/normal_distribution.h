#pragma once
// The normal distribution's tail, for the gates of GELU: one exponential and one division give both the cumulative distribution and the
// density.

#include "codegen/device/exponentials.h"

namespace hindcast::device {

/// From here on the tail is 0.
template <class T>
inline constexpr T kEndOfTail = sizeof(T) == 4 ? T(15) : T(39);

/// e^(-t^2 / 2) / kUnscale for 0 <= t <= kEndOfTail. What t^2 loses in rounding would be many ulps of a small result. Additions stand where
/// they can: CPUs do them beside multiplications.
template <class T>
HC_DEVICE T scaled_bell(T t) {
  using Range = ExpRange<T>;
  // With bias and scale in the rounder, the lowest bits of the rounded sum are the exponent of a scaled 2^n.
  constexpr T kRounder = Float<T>::kRounder + Float<T>::kBias + Range::kScaleExponent;
  const Pair<T> square = exact_product(t, t);
  const T rounded = exact::fma(square.high, T(-0.5) * Range::kLog2E, kRounder);
  const T n = rounded - kRounder;
  const T rough = exact::fma(n, T(-2) * Range::kLn2High, -square.high) - square.low;
  const T twice = exact::fma(n, T(-2) * Range::kLn2Low, rough);
  const T fraction = exact::fma(twice, exact::fma(twice, polynomial::exp_of_half_tail(twice), T(0.5)), T(1));
  return fraction * bit_cast<T>(bits_of(rounded) << Float<T>::kMantissa);
}

/// tail below 0, else 1 - tail, where tail = e^(-x^2 / 2) (1/2 - |x| fall); rounded once.
template <class T>
HC_DEVICE T beside_tail(T x, T size, T fall) {
  using Range = ExpRange<T>;
  const bool below = x < T(0);
  const T bell = scaled_bell(size);
  const T tail_to_bell = exact::fma(size * -Range::kUnscale, fall, T(0.5) * Range::kUnscale);
  return exact::fma(select(below, bell, -bell), tail_to_bell, select(below, T(0), T(1)));
}

/// a / b, where b is from 1 to 2^20, and a is 0 or from 2^-40 to 2^20. A card's division is for all other numbers too, behind a branch by
/// which elements wait for each other.
template <class T>
HC_DEVICE T quotient_of_ordinary(T a, T b) {
#if HC_CARD
  if constexpr (is_same<T, float>) {
    float inverse;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(b));
    // The inverse is one unit off at most. What it leaves of the quotient is so small that the sum is rounded as the quotient itself would
    // be, but for a millionth of a unit.
    const float rough = a * inverse;
    return exact::fma(exact::fma(-b, rough, a), inverse, rough);
  }
#endif
  return a / b;
}

/// The normal cumulative distribution at x.
template <class T>
HC_DEVICE T normal_cdf(T x) {
  constexpr T kCenter = polynomial::kNormalFallCenter<T>;
  const T size = at_most(magnitude_of(x), kEndOfTail<T>);
  return beside_tail(x, size, polynomial::normal_fall(quotient_of_ordinary(size - kCenter, size + kCenter)));
}

/// The derivative of x normal_cdf(x): normal_cdf(x) + x * density(x), and NaN for infinities, as that product is.
template <class T>
HC_DEVICE T normal_gate_slope(T x) {
  constexpr T kCenter = polynomial::kGateSlopeFallCenter<T>;
  const T size = at_most(magnitude_of(x), kEndOfTail<T>);
  return beside_tail(x, size, polynomial::gate_slope_fall(quotient_of_ordinary(size - kCenter, size + kCenter))) + (x - x);
}

}  // namespace hindcast::device
