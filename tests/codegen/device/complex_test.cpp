// Quotients and directions of complex numbers: their accuracy, and that no intermediate overflows.

#include "codegen/device/complex.h"
#include "tests/codegen/device/ulps.h"

#include <gtest/gtest.h>

#include <cmath>
#include <complex>
#include <limits>
#include <random>

namespace hindcast::tests {
namespace {

namespace dev = hindcast::device;

template <class T>
class DeviceComplex : public testing::Test {
 protected:
  using C = dev::Complex<T>;
  using Exact = std::complex<long double>;
  static constexpr T kNan = std::numeric_limits<T>::quiet_NaN(), kInf = std::numeric_limits<T>::infinity();

  /// A part of any magnitude; its square may overflow or underflow.
  C any() {
    const auto part = [&] { return static_cast<T>(std::ldexp(uniform_(random_), exponent_(random_))); };
    const T real = part();
    return {real, part()};
  }
  static Exact exact(C a) { return {a.real, a.imag}; }
  static double units(C a, Exact b) {
    return static_cast<double>(std::abs(exact(a) - b) / std::abs(b) / static_cast<long double>(std::numeric_limits<T>::epsilon()));
  }

 private:
  static constexpr int kLargest = std::numeric_limits<T>::max_exponent / 2 - 3;
  std::mt19937_64 random_{7};
  std::uniform_real_distribution<double> uniform_{-1, 1};
  std::uniform_int_distribution<int> exponent_{-kLargest, kLargest};
};
using RealTypes = testing::Types<float, double>;
TYPED_TEST_SUITE(DeviceComplex, RealTypes);

TYPED_TEST(DeviceComplex, AreWithinAFewUnitsOfTheirSize) {
  double product = 0, quotient = 0, direction = 0;
  for (int i = 0; i < 200000; ++i) {
    const auto a = this->any(), b = this->any();
    const auto x = this->exact(a), y = this->exact(b);
    product = std::max(product, this->units(dev::mul(a, b), x * y));
    quotient = std::max(quotient, this->units(dev::div(a, b), x / y));
    direction = std::max(direction, this->units(dev::complex_sgn(a), x / std::abs(x)));
  }
  EXPECT_LT(product, 2);
  EXPECT_LT(quotient, 4);
  EXPECT_LT(direction, 2);
}

TYPED_TEST(DeviceComplex, LargeAndSmallOnesAreInRange) {
  using C = dev::Complex<TypeParam>;
  const TypeParam large = std::numeric_limits<TypeParam>::max(), small = std::numeric_limits<TypeParam>::min();
  for (const TypeParam size : {large / 2, small * 8}) {
    const C a(size, size / 2);
    EXPECT_LT(this->units(dev::div(a, a), 1), 4);
    EXPECT_LT(this->units(dev::complex_sgn(a), std::complex<long double>(2, 1) / std::sqrt(5.0L)), 4);
  }
}

TYPED_TEST(DeviceComplex, SpecialValuesAreThoseOfLibTorch) {
  using C = dev::Complex<TypeParam>;
  const auto is = [](C a, C b) {
    const auto same = [](TypeParam x, TypeParam y) { return x == y || (x != x && y != y); };
    return same(a.real, b.real) && same(a.imag, b.imag);
  };
  const TypeParam inf = this->kInf, nan = this->kNan;
  EXPECT_TRUE(is(dev::div(C(1, -2), C(0)), C(inf, -inf)));
  EXPECT_TRUE(is(dev::div(C(0), C(0)), C(nan, nan)));
  EXPECT_TRUE(is(dev::div(C(1, 1), C(inf, 1)), C(0)));
  EXPECT_TRUE(is(dev::mul(C(inf, 1), C(2)), C(inf, nan)));
  EXPECT_TRUE(is(dev::complex_add(C(1, 1), C(0, inf)), C(nan, inf)));
  EXPECT_TRUE(is(dev::complex_sub(C(1, 1), C(0, inf)), C(nan, -inf)));
  EXPECT_TRUE(is(dev::complex_sgn(C(0)), C(0)));
  EXPECT_TRUE(is(dev::complex_sgn(C(0, -3)), C(0, -1)));
  EXPECT_TRUE(is(dev::complex_sgn(C(inf, 1)), C(nan, 0)));
  EXPECT_TRUE(is(dev::where(C(0, 1), C(1), C(2)), C(1)));
  EXPECT_TRUE(is(dev::where(false, C(1), C(2)), C(2)));
}

TYPED_TEST(DeviceComplex, ComeFromRealNumbers) {
  using C = dev::Complex<TypeParam>;
  const auto from_real = dev::convert<C>(dev::bfloat16{0x3f80});
  EXPECT_EQ(from_real.real, 1);
  EXPECT_EQ(from_real.imag, 0);
  EXPECT_EQ(dev::convert<dev::complex128>(C(1, 2)).imag, 2);
  EXPECT_TRUE(dev::convert<bool>(C(0, 1)));
  EXPECT_FALSE(dev::convert<bool>(C(0)));
}

}  // namespace
}  // namespace hindcast::tests
