// The accuracy of gelu and its gradient, which have formulas of their own: see codegen/device/normal_distribution.h.

#include "codegen/device/ops.h"
#include "tests/codegen/device/ulps.h"

#include <gtest/gtest.h>

namespace hindcast::tests {
namespace {

template <class W>
W normal_cdf(W x) {
  return std::erfc(-x * std::sqrt(W(0.5))) / 2;
}
template <class W>
W x_times_density(W x) {
  return x * std::exp(-x * x / 2) * std::sqrt(W(0.5) / std::acos(W(-1)));
}

/// Numbers from `low` to `high`, evenly spaced.
template <class T, class F>
void for_each_between(T low, T high, F visit) {
  const int count = exhaustive() ? 10'000'000 : 200'000;
  std::mt19937_64 random(24);
  for (int i = 0; i < count; ++i) visit(low + (high - low) * static_cast<T>(static_cast<double>(random() >> 11) * 0x1p-53));
}

/// The error of gelu in ulps of the exact value.
template <class T>
double worst_gelu(T low, T high) {
  double worst = 0;
  for_each_between(low, high, [&](T x) {
    const WiderOf<T> wide = x;
    worst = std::max(worst, ulps(device::gelu(x), wide * normal_cdf(wide)));
  });
  return worst;
}

/// The error of gelu_backward in ulps of the larger of the two terms that make up the exact value.
template <class T>
double worst_slope(T low, T high) {
  double worst = 0;
  for_each_between(low, high, [&](T x) {
    const WiderOf<T> first = normal_cdf(WiderOf<T>(x)), second = x_times_density(WiderOf<T>(x));
    const int exponent = std::ilogb(std::max(first, std::abs(second))) + 1;
    const WiderOf<T> error = std::abs(device::gelu_backward(T(1), x) - (first + second));
    worst = std::max(worst, static_cast<double>(std::ldexp(error, std::numeric_limits<T>::digits - exponent)));
  });
  return worst;
}

template <class T>
void expect_exact_gates() {
  // LibTorch's formula is off by up to 1.7 ulps above 0, and has no correct digit below -6.
  EXPECT_LE(worst_gelu<T>(0, 1), 2.5);
  EXPECT_LE(worst_gelu<T>(1, 40), 2);
  EXPECT_LE(worst_gelu<T>(-1, 0), 4);
  EXPECT_LE(worst_gelu<T>(-6, -1), 20);
  // Its gradient is off by 1.5 to 2.5 ulps above -0.3, 4 around -1, 260 at -4.
  EXPECT_LE(worst_slope<T>(0, 40), 2);
  EXPECT_LE(worst_slope<T>(-0.3, 0), 2.5);
  EXPECT_LE(worst_slope<T>(sizeof(T) == 4 ? -12 : -36, 0), 5);
}

TEST(DeviceGelu, IsExactToAFewUlps) {
  expect_exact_gates<float>();
  expect_exact_gates<double>();
}

TEST(DeviceGelu, EndsAtItsLimits) {
  for (const float x : {-15.0f, -40.0f, -1e30f, -std::numeric_limits<float>::max()}) {
    EXPECT_EQ(device::gelu(x), 0) << x;
    EXPECT_TRUE(std::signbit(device::gelu(x))) << x;
    EXPECT_EQ(device::gelu_backward(2.0f, x), 0) << x;
    EXPECT_EQ(device::gelu(-x), -x);
    EXPECT_EQ(device::gelu_backward(2.0f, -x), 2);
  }
  for (const double x : {-39.0, -1e300}) {
    EXPECT_EQ(device::gelu(x), 0) << x;
    EXPECT_EQ(device::gelu_backward(2.0, x), 0) << x;
    EXPECT_EQ(device::gelu_backward(2.0, -x), 2) << x;
  }
  // It does not jump to 0 before the smallest numbers.
  EXPECT_LT(device::gelu_backward(1.0f, -14.3f), 0);
  EXPECT_LT(device::gelu_backward(1.0, -38.5), 0);
}

}  // namespace
}  // namespace hindcast::tests
