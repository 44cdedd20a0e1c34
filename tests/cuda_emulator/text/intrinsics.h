#pragma once
// Functions that CUDA declares without an include: those of C's library, and intrinsics.

#include "qualifiers.h"

extern "C" {
#define HC_OF_ONE(name)               \
  double name(double) noexcept(true); \
  float name##f(float) noexcept(true);
HC_OF_ONE(sqrt)
HC_OF_ONE(exp)
HC_OF_ONE(log)
HC_OF_ONE(sin)
HC_OF_ONE(cos)
HC_OF_ONE(tanh)
HC_OF_ONE(erf)
HC_OF_ONE(fabs)
HC_OF_ONE(floor)
HC_OF_ONE(ceil)
HC_OF_ONE(trunc)
HC_OF_ONE(rint)
#undef HC_OF_ONE
double fma(double, double, double) noexcept(true);
float fmaf(float, float, float) noexcept(true);
double fmin(double, double) noexcept(true);
float fminf(float, float) noexcept(true);
double fmax(double, double) noexcept(true);
float fmaxf(float, float) noexcept(true);
double pow(double, double) noexcept(true);
float powf(float, float) noexcept(true);
}

__forceinline__ float rsqrtf(float a) { return 1.0f / __builtin_sqrtf(a); }
__forceinline__ double rsqrt(double a) { return 1.0 / __builtin_sqrt(a); }

template <class T>
__forceinline__ T min(T a, T b) {
  return b < a ? b : a;
}
template <class T>
__forceinline__ T max(T a, T b) {
  return a < b ? b : a;
}

// The text is compiled with -ffp-contract=off, so these round once.
__forceinline__ float __fmul_rn(float a, float b) { return a * b; }
__forceinline__ double __dmul_rn(double a, double b) { return a * b; }
__forceinline__ float __fadd_rn(float a, float b) { return a + b; }
__forceinline__ double __dadd_rn(double a, double b) { return a + b; }
__forceinline__ float __fsqrt_rn(float a) { return __builtin_sqrtf(a); }
__forceinline__ double __dsqrt_rn(double a) { return __builtin_sqrt(a); }
__forceinline__ float __fmaf_rn(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
__forceinline__ double __fma_rn(double a, double b, double c) { return __builtin_fma(a, b, c); }

__forceinline__ float __int_as_float(int bits) { return __builtin_bit_cast(float, bits); }
__forceinline__ int __float_as_int(float value) { return __builtin_bit_cast(int, value); }
__forceinline__ float __uint_as_float(unsigned bits) { return __builtin_bit_cast(float, bits); }
__forceinline__ unsigned __float_as_uint(float value) { return __builtin_bit_cast(unsigned, value); }
__forceinline__ double __longlong_as_double(long long bits) { return __builtin_bit_cast(double, bits); }
__forceinline__ long long __double_as_longlong(double value) { return __builtin_bit_cast(long long, value); }

__forceinline__ int __popc(unsigned bits) { return __builtin_popcount(bits); }
__forceinline__ int __clz(int bits) { return bits == 0 ? 32 : __builtin_clz(bits); }
__forceinline__ unsigned __umulhi(unsigned a, unsigned b) { return static_cast<unsigned>((static_cast<unsigned long long>(a) * b) >> 32); }
template <class T>
__forceinline__ T __ldg(const T* address) {
  return *address;
}
