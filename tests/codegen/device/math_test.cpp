// The accuracy of the functions of codegen/device/math.h, against the C library in a wider type. HINDCAST_EXHAUSTIVE=1 takes every float,
// HINDCAST_PRINT_ULPS=1 prints the table of codegen/device/coverage.h.

#include "codegen/device/ops.h"
#include "tests/codegen/device/ulps.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>

namespace hindcast::tests {
namespace {

/// Largest errors allowed.
struct Limits {
  double float_ulps = 1.5;
  double double_ulps = 2;
};

bool prints() { return std::getenv("HINDCAST_PRINT_ULPS") != nullptr; }

template <class T>
void expect_exact(const char* name, const Worst<T>& worst, double limit) {
  if (prints()) std::printf("%-12s %-6s %5.2f at %.17g\n", name, sizeof(T) == 4 ? "float" : "double", worst.ulps, double(worst.argument));
  EXPECT_LE(worst.ulps, limit) << name << (sizeof(T) == 4 ? " of the float " : " of the double ") << worst.argument;
}

template <class F, class R>
void measure(const char* name, F function, R reference, const Limits& limits = {}) {
  Worst<float> worst_float;
  const auto add_float = [&](float x) { worst_float.add(x, function(x), reference(double(x))); };
  // An odd step, so that the lowest bits vary too.
  const uint64_t step = exhaustive() ? 1 : 3989;
  for (uint64_t bits = 0; bits <= 0xffffffffu; bits += step) add_float(from_bits<float>(uint32_t(bits)));
  for (const float x : many_values<float>(50'000)) add_float(x);
  expect_exact(name, worst_float, limits.float_ulps);

  Worst<double> worst_double;
  for (const double x : many_values<double>(exhaustive() ? 10'000'000 : 100'000))
    worst_double.add(x, function(x), reference(static_cast<long double>(x)));
  expect_exact(name, worst_double, limits.double_ulps);
}

#define HC_MEASURE(name, expression, ...)            \
  measure(                                           \
      #name, [](auto x) { return device::name(x); }, \
      [](auto x) {                                   \
        using W = decltype(x);                       \
        return static_cast<W>(expression);           \
      } __VA_OPT__(, ) __VA_ARGS__)

TEST(DeviceMath, Exp) { HC_MEASURE(exp, std::exp(x)); }
TEST(DeviceMath, Exp2) { HC_MEASURE(exp2, std::exp2(x)); }
TEST(DeviceMath, Expm1) { HC_MEASURE(expm1, std::expm1(x)); }
TEST(DeviceMath, Log) { HC_MEASURE(log, std::log(x)); }
TEST(DeviceMath, Log1p) { HC_MEASURE(log1p, std::log1p(x)); }
TEST(DeviceMath, Log2) { HC_MEASURE(log2, std::log2(x)); }
TEST(DeviceMath, Log10) { HC_MEASURE(log10, std::log10(x)); }
TEST(DeviceMath, Tanh) { HC_MEASURE(tanh, std::tanh(x)); }
TEST(DeviceMath, Sigmoid) { HC_MEASURE(sigmoid, x < 0 ? std::exp(x) / (1 + std::exp(x)) : 1 / (1 + std::exp(-x))); }
TEST(DeviceMath, Sinh) { HC_MEASURE(sinh, std::sinh(x)); }
TEST(DeviceMath, Cosh) { HC_MEASURE(cosh, std::cosh(x)); }
TEST(DeviceMath, Erf) { HC_MEASURE(erf, std::erf(x)); }
TEST(DeviceMath, Erfc) { HC_MEASURE(erfc, std::erfc(x)); }
TEST(DeviceMath, Sin) { HC_MEASURE(sin, std::sin(x)); }
TEST(DeviceMath, Cos) { HC_MEASURE(cos, std::cos(x)); }
TEST(DeviceMath, Tan) { HC_MEASURE(tan, std::tan(x)); }

/// Where an angle's reduction cancels most: quarter turns, and the numbers beside them.
template <class T>
std::vector<T> near_angles(T limit = device::kNearAngle<T>) {
  std::vector<T> angles = many_values<T>(100'000);
  std::mt19937_64 random(23);
  const long double half_pi = std::acos(0.0L);
  const auto quarters = static_cast<int64_t>(limit / half_pi);
  const int count = exhaustive() ? 4'000'000 : 100'000;
  for (int i = 0; i < count; ++i) {
    const int64_t turns = i < 4000 ? i : static_cast<int64_t>(random() % static_cast<uint64_t>(quarters));
    const T angle = static_cast<T>(static_cast<long double>(turns) * half_pi);
    for (const T next : {angle, std::nextafter(angle, -limit), std::nextafter(angle, limit)}) angles.insert(angles.end(), {next, -next});
    angles.push_back(static_cast<T>(2 * (static_cast<double>(random() >> 11) * 0x1p-53) - 1) * limit);
  }
  std::erase_if(angles, [&](T x) { return std::abs(x) > limit; });
  angles.insert(angles.end(), {limit, -limit});
  return angles;
}

template <class F, class R>
void measure_near(const char* name, F function, R reference) {
  Worst<float> worst_float;
  const auto add_float = [&](float x) { worst_float.add(x, function(x), reference(double(x))); };
  for (uint64_t bits = 0; bits <= to_bits(device::kNearAngle<float>); bits += exhaustive() ? 1 : 1999) {
    add_float(from_bits<float>(uint32_t(bits)));
    add_float(-from_bits<float>(uint32_t(bits)));
  }
  for (const float x : near_angles<float>()) add_float(x);
  expect_exact(name, worst_float, 1.5);

  Worst<double> worst_double;
  for (const double x : near_angles<double>()) worst_double.add(x, function(x), reference(static_cast<long double>(x)));
  expect_exact(name, worst_double, 2);
}

#define HC_MEASURE_NEAR(name, expression) \
  measure_near(                           \
      #name, [](auto x) { return device::name(x); }, [](auto x) { return expression; })

TEST(DeviceMath, SinNear) { HC_MEASURE_NEAR(sin_near, std::sin(x)); }
TEST(DeviceMath, CosNear) { HC_MEASURE_NEAR(cos_near, std::cos(x)); }
TEST(DeviceMath, TanNear) { HC_MEASURE_NEAR(tan_near, std::tan(x)); }

// The reduction for sin and cos of floats on a GPU, up to more than kNearAngle.
TEST(DeviceMath, QuarterTurnsOfFloats) {
  constexpr float kLimit = device::Angles<float>::kLargestNear;
  Worst<float> worst_sin, worst_cos;
  const auto add = [&](float x) {
    const auto reduced = device::reduce_near(x);
    if (x != 0) worst_sin.add(x, device::sin_of_quarters(reduced.angle, reduced.quarters), std::sin(double(x)));
    worst_cos.add(x, device::sin_of_quarters(reduced.angle, reduced.quarters + 1), std::cos(double(x)));
  };
  for (uint64_t bits = 0; bits <= to_bits(kLimit); bits += exhaustive() ? 1 : 1999) {
    add(from_bits<float>(uint32_t(bits)));
    add(-from_bits<float>(uint32_t(bits)));
  }
  for (const float x : near_angles(kLimit)) add(x);
  expect_exact("sin quarters", worst_sin, 1);
  expect_exact("cos quarters", worst_cos, 1);
}

template <class F, class R>
void measure_far(const char* name, F function, R reference) {
  Worst<double> worst;
  for (const double x : near_angles(0x1p60)) worst.add(x, function(x), reference(static_cast<long double>(x)));
  expect_exact(name, worst, 2);
}

// Doubles so large that a double cannot count their quarter turns.
TEST(DeviceMath, FarAnglesOfDoubles) {
  measure_far(
      "sin far", [](double x) { return device::sin(x); }, [](long double x) { return std::sin(x); });
  measure_far(
      "cos far", [](double x) { return device::cos(x); }, [](long double x) { return std::cos(x); });
  measure_far(
      "tan far", [](double x) { return device::tan(x); }, [](long double x) { return std::tan(x); });
}

// The doubles that are closest to quarter turns, by the continued fractions of 2^n * 2 / pi: their sines or cosines, with 450 digits.
TEST(DeviceMath, AnglesClosestToQuarterTurns) {
  EXPECT_EQ(device::cos(0x1.6ac5b262ca1ffp+849), -0x1.14ae72e6ba22fp-61);
  EXPECT_EQ(device::sin(0x1.6ac5b262ca1ffp+849), 1);
  EXPECT_EQ(device::cos(0x1.6c6cbc45dc8dep+5), -0x1.6d61b58c99c43p-61);
  EXPECT_EQ(device::sin(-0x1.6ac5b262ca1ffp+850), 0x1.14ae72e6ba22fp-60);
  EXPECT_EQ(device::cos(-0x1.6ac5b262ca1ffp+850), -1);
  EXPECT_EQ(device::cos(0x1.b951f1572eba5p+23), -0x1.f54f5227a4e84p-60);
  EXPECT_EQ(device::cos(-0x1.504cac51f1eafp+131), -0x1.0cb604d34f341p-59);
  EXPECT_EQ(device::sin(-0x1.6ac5b262ca1ffp+851), -0x1.14ae72e6ba22fp-59);
  EXPECT_EQ(device::cos(0x1.e009c53148be1p+991), 0x1.295a3b0a64b1dp-59);
}

TEST(DeviceMath, AnglesThatAreNoNumbers) {
  for (const double x : {HUGE_VAL, -HUGE_VAL, std::nan("")}) {
    EXPECT_TRUE(std::isnan(device::sin(x)) && std::isnan(device::cos(x)) && std::isnan(device::tan(x))) << x;
  }
  EXPECT_TRUE(std::signbit(device::sin(-0.0)) && std::signbit(device::tan(-0.0)));
  EXPECT_EQ(device::cos(-0.0), 1);
}

TEST(DeviceMath, Asin) { HC_MEASURE(asin, std::asin(x)); }
TEST(DeviceMath, Acos) { HC_MEASURE(acos, std::acos(x)); }
TEST(DeviceMath, Atan) { HC_MEASURE(atan, std::atan(x)); }
TEST(DeviceMath, Sqrt) { HC_MEASURE(sqrt, std::sqrt(x), {.float_ulps = 0.51, .double_ulps = 0.51}); }
TEST(DeviceMath, Rsqrt) { HC_MEASURE(rsqrt, 1 / std::sqrt(x)); }

template <class T, class F, class R>
void measure_two(const char* name, double limit, F function, R reference) {
  Worst<T> worst;
  T second_of_worst = 0;
  const auto add = [&](T a, T b) {
    const double before = worst.ulps;
    worst.add(a, function(a, b), reference(WiderOf<T>(a), WiderOf<T>(b)));
    if (worst.ulps > before) second_of_worst = b;
  };
  std::vector<T> special = special_values<T>();
  for (const T odd_or_half : {T(-2.5), T(1.5), T(5), T(7), T(-7), T(0x1p23) + 1, T(1e5)}) special.push_back(odd_or_half);
  for (const T a : special) {
    for (const T b : special) add(a, b);
  }
  const std::vector<T> first = many_values<T>(100'000), second = many_values<T>(100'000, 21);
  for (size_t i = 0; i < first.size(); ++i) add(first[i], second[(i * 7919) % second.size()]);
  std::mt19937_64 random(22);
  // Where pow does not overflow or underflow right away.
  for (int i = 0; i < 400'000; ++i) {
    const double a = static_cast<double>(random() >> 11) * 0x1p-53, b = static_cast<double>(random() >> 11) * 0x1p-53;
    const double largest = std::log(double(std::numeric_limits<T>::max()));
    const T base = static_cast<T>(std::exp((2 * a - 1) * (i % 2 == 0 ? largest : 2.0)));
    add(base, static_cast<T>((2 * b - 1) * largest / std::abs(std::log(double(base)))));
  }
  expect_exact(name, worst, limit);
  EXPECT_LE(worst.ulps, limit) << "the second argument is " << second_of_worst;
}

#define HC_MEASURE_TWO(name, T, limit) \
  measure_two<T>(                      \
      #name, limit, [](T a, T b) { return device::name(a, b); }, [](auto a, auto b) { return std::name(a, b); })

TEST(DeviceMath, Pow) {
  HC_MEASURE_TWO(pow, float, 1.5);
  HC_MEASURE_TWO(pow, double, 2);
}
TEST(DeviceMath, Atan2) {
  HC_MEASURE_TWO(atan2, float, 1.5);
  HC_MEASURE_TWO(atan2, double, 2);
}

#define HC_MEASURE_LOG_PRODUCT(name, T, limit, log) \
  measure_two<T>(                                   \
      #name, limit, [](T x, T y) { return device::name(x, y); }, [](auto x, auto y) { return x == 0 && !std::isnan(y) ? 0 : x * log(y); })

TEST(DeviceMath, Xlogy) {
  HC_MEASURE_LOG_PRODUCT(xlogy, float, 2, std::log);
  HC_MEASURE_LOG_PRODUCT(xlogy, double, 2, std::log);
}
TEST(DeviceMath, Xlog1py) {
  HC_MEASURE_LOG_PRODUCT(xlog1py, float, 2, std::log1p);
  HC_MEASURE_LOG_PRODUCT(xlog1py, double, 2, std::log1p);
}

TEST(DeviceMath, RoundsHalvesToEven) {
  EXPECT_EQ(device::round(0.5f), 0.0f);
  EXPECT_EQ(device::round(1.5f), 2.0f);
  EXPECT_EQ(device::round(-2.5), -2.0);
  EXPECT_TRUE(std::signbit(device::round(-0.3f)));
}

}  // namespace
}  // namespace hindcast::tests
