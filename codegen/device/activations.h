#pragma once
// Activation functions, each with the formula of LibTorch's CPU kernels.

#include "codegen/device/arithmetic.h"
#include "codegen/device/math.h"
#include "codegen/device/normal_distribution.h"

namespace hindcast::device {

template <class T>
HC_FUNCTOR T relu(T a) {
  return clamp_min(a, T(0));
}
template <class T>
HC_FUNCTOR T threshold(T a, T threshold, T value) {
  return select(a <= threshold, value, a);
}
template <class T>
HC_FUNCTOR T leaky_relu(T a, T negative_slope) {
  return select(a > T(0), a, a * negative_slope);
}
template <class T>
HC_FUNCTOR T prelu(T a, T weight) {
  return select(a > T(0), a, weight * a);
}
template <class T>
HC_FUNCTOR T hardtanh(T a, T min, T max) {
  return clamp(a, min, max);
}
template <class T>
HC_FUNCTOR T hardsigmoid(T a) {
  return clamp(a + T(3), T(0), T(6)) / T(6);
}
template <class T>
HC_FUNCTOR T hardswish(T a) {
  return a * clamp(a + T(3), T(0), T(6)) / T(6);
}
template <class T>
HC_FUNCTOR T hardshrink(T a, T lambda) {
  return select((a >= -lambda) & (a <= lambda), T(0), a);
}
template <class T>
HC_FUNCTOR T softshrink(T a, T lambda) {
  return select(a > lambda, a - lambda, select(a < -lambda, a + lambda, a * T(0)));
}
template <class T>
HC_FUNCTOR T elu(T a, T alpha, T scale, T input_scale) {
  return select(a < T(0), expm1(a * input_scale) * (alpha * scale), a * scale);
}
template <class T>
HC_FUNCTOR T silu(T a) {
  return a / (T(1) + exp(-a));
}
template <class T>
HC_FUNCTOR T softplus(T a, T beta, T threshold) {
  return select(a * beta > threshold, a, log1p(exp(a * beta)) / beta);
}
template <class T>
HC_FUNCTOR T mish(T a) {
  return a * tanh(log1p(exp(a)));
}
/// With `eps` below 0 nothing is clamped.
template <class T>
HC_FUNCTOR T logit(T a, T eps) {
  const T x = select(eps < T(0), a, clamp(a, eps, T(1) - eps));
  return log(x / (T(1) - x));
}

inline constexpr double kGeluBeta = 0.79788456080286535588;  // sqrt(2 / pi)
inline constexpr double kGeluKappa = 0.044715;

template <class T>
HC_FUNCTOR T gelu(T a) {
  return a * normal_cdf(a);
}
template <class T>
HC_FUNCTOR T gelu_tanh(T a) {
  const T inner = T(kGeluBeta) * (a + T(kGeluKappa) * (a * a * a));
  return T(0.5) * a * (T(1) + tanh(inner));
}

/// pow with one exponent for all elements: LibTorch special-cases these six, also for -0.0 and -inf.
template <class T>
HC_FUNCTOR T pow_scalar(T base, T exponent) {
  if (exponent == T(0.5)) return sqrt(base);
  if (exponent == T(2)) return square(base);
  if (exponent == T(3)) return cube(base);
  if (exponent == T(-0.5)) return rsqrt(base);
  if (exponent == T(-1)) return reciprocal(base);
  if (exponent == T(-2)) return reciprocal_square(base);
  return pow(base, exponent);
}

}  // namespace hindcast::device
