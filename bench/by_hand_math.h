#pragma once

// Shared by the files by_hand_*.cpp: small matrix products with sizes known at compile time, and element-wise functions, in vectors of one
// register. GCC's and Clang's vector extensions, no intrinsics.
//
// Only those files are compiled for the machine's own processor. Everything is static here and nothing uses the standard library's
// templates: the linker could use such an instantiation for the whole program.

#include <cmath>

#include "bench/by_hand.h"

namespace hindcast::bench {

// A product's block has two vectors per row, and rows that divide all sizes here: its sums stay in the 32 registers of AVX-512, or the 16
// of AVX2.
#if defined(__AVX512F__)
constexpr int kLanes = 16, kBlockRows = 8;
constexpr Vectors kVectorsOfStep = Vectors::Avx512;
#elif defined(__AVX2__) && defined(__FMA__)
constexpr int kLanes = 8, kBlockRows = 4;
constexpr Vectors kVectorsOfStep = Vectors::Avx2;
#else
constexpr int kLanes = 4, kBlockRows = 4;
constexpr Vectors kVectorsOfStep = Vectors::Other;
#endif

using Floats = float __attribute__((vector_size(4 * kLanes), aligned(4), may_alias));
using Ints = int __attribute__((vector_size(4 * kLanes), aligned(4), may_alias));

#define HINDCAST_INLINE static inline __attribute__((always_inline))

HINDCAST_INLINE Floats load(const float* at) { return *reinterpret_cast<const Floats*>(at); }
HINDCAST_INLINE void store(float* at, Floats x) { *reinterpret_cast<Floats*>(at) = x; }
HINDCAST_INLINE Floats all(float x) { return Floats{} + x; }
HINDCAST_INLINE Floats where(Ints mask, Floats x) { return reinterpret_cast<Floats>(reinterpret_cast<Ints>(x) & mask); }

HINDCAST_INLINE float sum_of(Floats x) {
  float sum = 0;
  for (int i = 0; i < kLanes; ++i) sum += x[i];
  return sum;
}

HINDCAST_INLINE float largest_of(Floats x) {
  float largest = x[0];
  for (int i = 1; i < kLanes; ++i) largest = x[i] > largest ? x[i] : largest;
  return largest;
}

// A rational approximation, as in Eigen and XLA.
HINDCAST_INLINE Floats tanh_of(Floats x) {
  const Floats limit = all(7.90531110763549805F);
  x = x > limit ? limit : x;
  x = x < -limit ? -limit : x;
  const Floats square = x * x;
  Floats p = square * -2.76076847742355e-16F + 2.00018790482477e-13F;
  p = p * square + -8.60467152213735e-11F;
  p = p * square + 5.12229709037114e-08F;
  p = p * square + 1.48572235717979e-05F;
  p = p * square + 6.37261928875436e-04F;
  p = p * square + 4.89352455891786e-03F;
  Floats q = square * 1.19825839466702e-06F + 1.18534705686654e-04F;
  q = q * square + 2.26843463243900e-03F;
  q = q * square + 4.89352518554385e-03F;
  return p * x / q;
}

HINDCAST_INLINE Floats sigmoid_of(Floats x) { return 0.5F * tanh_of(0.5F * x) + 0.5F; }

// 2^n * e^r with |r| <= ln(2)/2, for x that neither overflows nor is far below -87.
HINDCAST_INLINE Floats exp_of(Floats x) {
  x = x < -87.0F ? all(-87.0F) : x;
  const Floats scaled = x * 1.44269504F;
  const Ints whole = __builtin_convertvector(scaled + (scaled > 0 ? all(0.5F) : all(-0.5F)), Ints);
  const Floats n = __builtin_convertvector(whole, Floats);
  const Floats r = x - n * 0.693359375F - n * -2.12194440e-4F;
  Floats p = r * 1.9875691500e-4F + 1.3981999507e-3F;
  p = p * r + 8.3334519073e-3F;
  p = p * r + 4.1665795894e-2F;
  p = p * r + 1.6666665459e-1F;
  p = p * r + 5.0000001201e-1F;
  p = p * r * r + r + 1.0F;
  return reinterpret_cast<Floats>(reinterpret_cast<Ints>(p) + (whole << 23));
}

struct AsItIs {
  Floats operator()(Floats x, int /*m*/, int /*n*/) const { return x; }
};

/// C[M, N] = last(A[M, K] B[K, N]). A(m, k) is a[m * kRow + k * kColumn]; rows of B and C are contiguous. A block of kBlockRows rows and
/// two vectors stays in registers, where `last` does the rest of the layer.
template <int kM, int kN, int kK, int kRow, int kColumn, class Last>
HINDCAST_INLINE void product(const float* __restrict a, const float* __restrict b, float* __restrict c, const Last& last) {
  constexpr int kRows = kBlockRows, kVectors = 2;
  static_assert(kN % (kLanes * kVectors) == 0 && kM % kRows == 0, "whole blocks");
  for (int n = 0; n < kN; n += kLanes * kVectors) {
    for (int m = 0; m < kM; m += kRows) {
      Floats sums[kRows][kVectors] = {};
      for (int k = 0; k < kK; ++k) {
        const Floats left = load(b + k * kN + n), right = load(b + k * kN + n + kLanes);
#pragma GCC unroll 8
        for (int i = 0; i < kRows; ++i) {
          const Floats factor = all(a[(m + i) * kRow + k * kColumn]);
          sums[i][0] += factor * left;
          sums[i][1] += factor * right;
        }
      }
#pragma GCC unroll 8
      for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 2
        for (int j = 0; j < kVectors; ++j) {
          const int column = n + kLanes * j;
          store(c + (m + i) * kN + column, last(sums[i][j], m + i, column));
        }
      }
    }
  }
}

/// [K, N] to [N, K]
template <int kK, int kN>
HINDCAST_INLINE void transpose(const float* __restrict from, float* __restrict to) {
  constexpr int kTile = kK < kLanes ? kK : kLanes;
  static_assert(kK % kTile == 0, "whole tiles");
  for (int k = 0; k < kK; k += kTile) {
    for (int n = 0; n < kN; ++n) {
      for (int i = 0; i < kTile; ++i) to[n * kK + k + i] = from[(k + i) * kN + n];
    }
  }
}

/// The sum of `rows` rows.
template <int kRows, int kN>
HINDCAST_INLINE void sum_rows(const float* from, float* to) {
  for (int n = 0; n < kN; n += kLanes) {
    Floats sum = {};
    for (int row = 0; row < kRows; ++row) sum += load(from + row * kN + n);
    store(to + n, sum);
  }
}

HINDCAST_INLINE double norm_of(const float* x, int count) {
  Floats first = {}, second = {};
  int i = 0;
  for (; i + 2 * kLanes <= count; i += 2 * kLanes) {
    const Floats a = load(x + i), b = load(x + i + kLanes);
    first += a * a;
    second += b * b;
  }
  double sum = sum_of(first + second);
  for (; i < count; ++i) sum += static_cast<double>(x[i]) * x[i];
  return std::sqrt(sum);
}

/// Clips gradients and runs Adam's step on `count` floats. `steps` includes this one.
HINDCAST_INLINE void clip_and_update(float* __restrict parameters, const float* __restrict gradients, float* __restrict means,
                                     float* __restrict squares, int count, float max_norm, float rate, double steps) {
  constexpr double kBeta1 = 0.9, kBeta2 = 0.999;
  const double norm = norm_of(gradients, count);
  const float scale = norm + 1e-6 > max_norm ? static_cast<float>(max_norm / (norm + 1e-6)) : 1.0F;
  const auto step = static_cast<float>(rate / (1 - std::pow(kBeta1, steps)));
  const auto correction = static_cast<float>(1 / std::sqrt(1 - std::pow(kBeta2, steps)));
  for (int i = 0; i < count; ++i) {
    const float gradient = gradients[i] * scale;
    const float mean = means[i] = 0.9F * means[i] + 0.1F * gradient;
    const float square = squares[i] = 0.999F * squares[i] + 0.001F * (gradient * gradient);
    parameters[i] -= step * mean / (std::sqrt(square) * correction + 1e-8F);
  }
}

}  // namespace hindcast::bench
