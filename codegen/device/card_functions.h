#pragma once
// On a card these functions of float are CUDA's, as in LibTorch's kernels: the card has instructions for powers of two, logarithms and
// reciprocals, and the arithmetic of the other headers takes many in their place. That of sine and cosine of near angles takes few.

#include "codegen/device/arithmetic.h"
#include "codegen/device/error_function.h"
#include "codegen/device/exponentials.h"
#include "codegen/device/logarithms.h"
#include "codegen/device/trigonometry.h"

#if HC_CARD

namespace hindcast::device {

template <>
HC_DEVICE float rsqrt(float x) {
  return ::rsqrtf(x);
}

template <>
HC_DEVICE float exp(float x) {
  return ::expf(x);
}
template <>
HC_DEVICE float exp2(float x) {
  return ::exp2f(x);
}
template <>
HC_DEVICE float expm1(float x) {
  return ::expm1f(x);
}
template <>
HC_DEVICE float sigmoid(float x) {
  return 1.0f / (1.0f + ::expf(-x));
}
template <>
HC_DEVICE float tanh(float x) {
  return ::tanhf(x);
}
template <>
HC_DEVICE float sinh(float x) {
  return ::sinhf(x);
}
template <>
HC_DEVICE float cosh(float x) {
  return ::coshf(x);
}

template <>
HC_DEVICE float erf(float x) {
  return ::erff(x);
}
template <>
HC_DEVICE float erfc(float x) {
  return ::erfcf(x);
}

template <>
HC_DEVICE float log(float x) {
  return ::logf(x);
}
template <>
HC_DEVICE float log1p(float x) {
  return ::log1pf(x);
}
template <>
HC_DEVICE float log2(float x) {
  return ::log2f(x);
}
template <>
HC_DEVICE float log10(float x) {
  return ::log10f(x);
}
template <>
HC_DEVICE float pow(float base, float exponent) {
  return ::powf(base, exponent);
}

template <>
HC_DEVICE float asin(float x) {
  return ::asinf(x);
}
template <>
HC_DEVICE float acos(float x) {
  return ::acosf(x);
}
template <>
HC_DEVICE float atan(float x) {
  return ::atanf(x);
}

}  // namespace hindcast::device

#endif
