#pragma once
// erf and erfc.

#include "codegen/device/exponentials.h"

namespace hindcast::device {

/// erf for 0 <= x < 1.
template <class T>
HC_DEVICE T small_erf(T x) {
  return exact::fma(x, polynomial::erf_factor(x * x), x);
}

template <class T>
HC_FUNCTOR T erf(T x) {
  const T size = magnitude_of(x);
  // Beyond the range of the polynomial 1 - erf(x) is below half an ulp of 1.
  const T limit = sizeof(T) == 4 ? T(4) : T(6);
  const ExpParts<T> parts = split_exp(-polynomial::negative_log_erfc(at_most(size, limit)));
  const T large = T(1) - two_to(parts.exponent) * (T(1) + (parts.head + parts.tail));
  return with_sign_of(select(size < T(1), small_erf(size), large), x);
}

template <class T>
HC_FUNCTOR T erfc(T x) {
  const T size = magnitude_of(x);
  const T bounded = at_most(size, sizeof(T) == 4 ? T(10.125) : T(27.25));
  const T center = polynomial::erfc_center(x);
  const T inverse = T(1) / (bounded + center);
  const T estimate = (bounded - center) * inverse;
  const T rest = exact::fma(-estimate, bounded + center, bounded - center);
  const Pair<T> scaled = polynomial::scaled_erfc(exact::fma(rest, inverse, estimate));
  const Pair<T> square = exact_product(bounded, bounded);
  const ExpParts<T> parts = split_exp(Pair<T>{-square.high, -square.low});
  const Pair<T> fraction = fraction_of(parts);
  const Pair<T> top = product(fraction, scaled);
  const Pair<T> denominator = exact_sum(T(1), T(2) * bounded);
  const T tail = quotient(top, denominator);
  const T positive = select(size < T(0.5), T(1) - small_erf(size), times_two_to(tail, parts.exponent));
  return select(x < T(0), T(2) - positive, positive);
}

}  // namespace hindcast::device
