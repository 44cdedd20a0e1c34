#pragma once
// Arithmetic, comparisons, logic and rounding. The op's name in fused code is the function's name here.

#include "codegen/device/floats.h"

namespace hindcast::device {

template <class T>
HC_FUNCTOR T add(T a, T b) {
  return a + b;
}
template <class T>
HC_FUNCTOR T sub(T a, T b) {
  return a - b;
}
template <class T>
HC_FUNCTOR T mul(T a, T b) {
  return a * b;
}
template <class T>
HC_FUNCTOR T div(T a, T b) {
  return a / b;
}
template <class T>
HC_FUNCTOR T neg(T a) {
  return -a;
}
template <class T>
HC_FUNCTOR T reciprocal(T a) {
  return T(1) / a;
}

template <class T>
HC_FUNCTOR T abs(T a) {
  if constexpr (is_floating<T>) {
    return magnitude_of(a);
  } else {
    return a < T(0) ? -a : a;
  }
}

/// 0 for NaN, as in LibTorch.
template <class T>
HC_FUNCTOR T sign(T a) {
  return T(T(0) < a) - T(a < T(0));
}
template <class T>
HC_FUNCTOR T sgn(T a) {
  return sign(a);
}

template <class T>
HC_FUNCTOR T sqrt(T a) {
  return exact::sqrt(a);
}
template <class T>
HC_FUNCTOR T rsqrt(T a) {
  return T(1) / exact::sqrt(a);
}
template <class T>
HC_FUNCTOR T square(T a) {
  return a * a;
}
/// a - b^2, rounded once: where the two nearly cancel, ATen's addcmul has as few negative results.
template <class T>
HC_FUNCTOR T minus_square(T a, T b) {
  return exact::fma(-b, b, a);
}
template <class T>
HC_FUNCTOR T cube(T a) {
  return a * a * a;
}
template <class T>
HC_FUNCTOR T reciprocal_square(T a) {
  return T(1) / (a * a);
}

template <class T>
HC_FUNCTOR T floor(T a) {
  return exact::floor(a);
}
template <class T>
HC_FUNCTOR T ceil(T a) {
  return exact::ceil(a);
}
template <class T>
HC_FUNCTOR T trunc(T a) {
  return exact::trunc(a);
}
/// Ties to even.
template <class T>
HC_FUNCTOR T round(T a) {
  return exact::round(a);
}

template <class T>
HC_FUNCTOR bool eq(T a, T b) {
  return a == b;
}
template <class T>
HC_FUNCTOR bool ne(T a, T b) {
  return a != b;
}
template <class T>
HC_FUNCTOR bool lt(T a, T b) {
  return a < b;
}
template <class T>
HC_FUNCTOR bool le(T a, T b) {
  return a <= b;
}
template <class T>
HC_FUNCTOR bool gt(T a, T b) {
  return a > b;
}
template <class T>
HC_FUNCTOR bool ge(T a, T b) {
  return a >= b;
}
template <class T>
HC_FUNCTOR bool isnan(T a) {
  return a != a;
}
template <class T>
HC_FUNCTOR bool isinf(T a) {
  return magnitude_of(a) == infinity<T>();
}

// `&` and `|` instead of `&&` and `||`: both sides are already computed, and a branch would prevent vectorisation.
template <class T>
HC_FUNCTOR bool logical_and(T a, T b) {
  return (a != T(0)) & (b != T(0));
}
template <class T>
HC_FUNCTOR bool logical_or(T a, T b) {
  return (a != T(0)) | (b != T(0));
}
template <class T>
HC_FUNCTOR bool logical_xor(T a, T b) {
  return (a != T(0)) != (b != T(0));
}
template <class T>
HC_FUNCTOR bool logical_not(T a) {
  return a == T(0);
}

/// A NaN on either side is the result.
template <class T>
HC_FUNCTOR T maximum(T a, T b) {
  return select((a != a) | (a > b), a, b);
}
template <class T>
HC_FUNCTOR T minimum(T a, T b) {
  return select((a != a) | (a < b), a, b);
}
/// Unlike `maximum`, it keeps a -0.0 that equals the limit, and so does relu.
template <class T>
HC_FUNCTOR T clamp_min(T a, T min) {
  return select((min != min) | (a < min), min, a);
}
template <class T>
HC_FUNCTOR T clamp_max(T a, T max) {
  return select((max != max) | (a > max), max, a);
}
/// `max` wins if the limits cross.
template <class T>
HC_FUNCTOR T clamp(T a, T min, T max) {
  return clamp_max(clamp_min(a, min), max);
}

template <class T>
HC_FUNCTOR T where(bool condition, T yes, T no) {
  return select(condition, yes, no);
}

}  // namespace hindcast::device
