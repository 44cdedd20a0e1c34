// All 65,536 patterns of both 16-bit floats, and values between two of them.

#include "codegen/device/types.h"
#include "tests/codegen/device/ulps.h"

#include <gtest/gtest.h>

namespace hindcast::tests {
namespace {

using device::bfloat16;
using device::convert;
using device::float16;

/// The value of a 16-bit float by its definition: sign, exponent, significand.
double value_of(uint16_t bits, int mantissa) {
  const int exponent_bits = 15 - mantissa, bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = (bits & 0x7fff) >> mantissa, fraction = bits & ((1 << mantissa) - 1);
  const double sign = bits & 0x8000 ? -1 : 1;
  if (exponent == (1 << exponent_bits) - 1) return fraction == 0 ? sign * INFINITY : NAN;
  if (exponent == 0) return sign * std::ldexp(fraction, 1 - bias - mantissa);
  return sign * std::ldexp(fraction + (1 << mantissa), exponent - bias - mantissa);
}

template <class S>
constexpr int kMantissaOf = 10;
template <>
constexpr int kMantissaOf<bfloat16> = 7;

template <class S>
uint16_t narrow(float value) {
  return convert<S>(value).bits;
}

template <class S>
class Conversions : public testing::Test {};
using StorageTypes = testing::Types<float16, bfloat16>;
TYPED_TEST_SUITE(Conversions, StorageTypes);

TYPED_TEST(Conversions, EveryPatternHasItsValueAndComesBack) {
  for (uint32_t bits = 0; bits <= 0xffff; ++bits) {
    const double exact = value_of(uint16_t(bits), kMantissaOf<TypeParam>);
    const float wide = convert<float>(TypeParam{uint16_t(bits)});
    ASSERT_EQ(std::isnan(wide), std::isnan(exact)) << bits;
    if (std::isnan(exact)) continue;
    ASSERT_EQ(wide, exact) << bits;
    ASSERT_EQ(std::signbit(wide), std::signbit(exact)) << bits;
    ASSERT_EQ(narrow<TypeParam>(wide), bits);
  }
}

TYPED_TEST(Conversions, RoundsToTheNearestAndTiesToEven) {
  const int mantissa = kMantissaOf<TypeParam>;
  const uint16_t infinity = uint16_t(0x7fff & ~((1 << mantissa) - 1));
  for (uint16_t low = 0; low < infinity - 1; ++low) {
    const uint16_t high = low + 1;
    const float middle = static_cast<float>((value_of(low, mantissa) + value_of(high, mantissa)) / 2);
    const uint16_t even = low % 2 == 0 ? low : high;
    for (const int sign : {0, 0x8000}) {
      const float signed_middle = sign == 0 ? middle : -middle;
      ASSERT_EQ(narrow<TypeParam>(signed_middle), even | sign);
      ASSERT_EQ(narrow<TypeParam>(std::nextafter(signed_middle, 0.0f)), low | sign);
      ASSERT_EQ(narrow<TypeParam>(std::nextafter(signed_middle, 2 * signed_middle)), high | sign);
    }
  }
}

TEST(Float16, TooLargeIsInfinite) {
  EXPECT_EQ(narrow<float16>(65504.0f), 0x7bff);
  EXPECT_EQ(narrow<float16>(std::nextafter(65520.0f, 0.0f)), 0x7bff);
  EXPECT_EQ(narrow<float16>(65520.0f), 0x7c00);
  EXPECT_EQ(narrow<float16>(-3e38f), 0xfc00);
  EXPECT_EQ(narrow<float16>(INFINITY), 0x7c00);
}

TEST(Float16, TooSmallIsZeroWithItsSign) {
  EXPECT_EQ(narrow<float16>(0x1p-25f), 0);
  EXPECT_EQ(narrow<float16>(-0x1p-25f), 0x8000);
  EXPECT_EQ(narrow<float16>(0x1.8p-25f), 1);
  EXPECT_EQ(narrow<float16>(std::numeric_limits<float>::denorm_min()), 0);
}

TEST(Bfloat16, TooLargeIsInfinite) {
  EXPECT_EQ(narrow<bfloat16>(std::numeric_limits<float>::max()), 0x7f80);
  EXPECT_EQ(narrow<bfloat16>(-INFINITY), 0xff80);
}

// Like c10 on the CPU.
TEST(Conversions, NansAreThoseOfLibTorch) {
  for (const uint32_t nan : {0x7fc00000u, 0x7f800001u, 0x7fffffffu, 0x7f802000u}) {
    EXPECT_EQ(narrow<bfloat16>(from_bits<float>(nan)), 0x7fc0);
    EXPECT_EQ(narrow<bfloat16>(from_bits<float>(nan | 0x80000000u)), 0x7fc0);
    EXPECT_EQ(narrow<float16>(from_bits<float>(nan)), 0x7e00);
    EXPECT_EQ(narrow<float16>(from_bits<float>(nan | 0x80000000u)), 0xfe00);
  }
  EXPECT_EQ(to_bits(convert<float>(float16{0x7e00})), 0x7fc00000u);
  EXPECT_EQ(to_bits(convert<float>(float16{0x7c01})), 0x7fc02000u);
  EXPECT_EQ(to_bits(convert<float>(bfloat16{0xff81})), 0xff810000u);
}

TEST(Conversions, BetweenOtherTypes) {
  EXPECT_EQ(convert<device::int32>(-2.75), -2);
  EXPECT_EQ(convert<double>(device::int64{1} << 40), 0x1p40);
  EXPECT_TRUE(convert<bool>(0.25f));
  EXPECT_TRUE(convert<bool>(bfloat16{0x3f80}));
  EXPECT_FALSE(convert<bool>(bfloat16{0x8000}));
  EXPECT_EQ(convert<float16>(true).bits, 0x3c00);
  EXPECT_EQ(convert<bfloat16>(float16{0x3c00}).bits, 0x3f80);
  // As in LibTorch, a double is converted through float.
  EXPECT_EQ(convert<bfloat16>(1 + 0x1p-8 + 0x1p-40).bits, 0x3f80);
}

}  // namespace
}  // namespace hindcast::tests
