// Arithmetic, activations and their gradients: special values, and gradients compared with differences of the forward.

#include "codegen/device/ops.h"
#include "tests/codegen/device/ulps.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>

namespace hindcast::tests {
namespace {

namespace dev = hindcast::device;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

bool same(double a, double b) { return (std::isnan(a) && std::isnan(b)) || (a == b && std::signbit(a) == std::signbit(b)); }

/// The results of LibTorch's vectorised CPU kernels for these arguments, to four decimals.
constexpr double kArguments[] = {-3, 3, kNan, 0, -0.0, kInf, -kInf};

struct SpecialRow {
  const char* name;
  std::function<double(double)> in_double;
  std::function<float(float)> in_float;
  std::vector<double> expected;
};

#define HC_ROW(name, expression, ...)                                                          \
  SpecialRow {                                                                                 \
    name, [](double x) { return expression; }, [](float x) { return expression; }, __VA_ARGS__ \
  }
#define HC_T decltype(x)

const std::vector<SpecialRow>& special_rows() {
  static const std::vector<SpecialRow> rows = {
      HC_ROW("relu", dev::relu(x), {0, 3, kNan, 0, -0.0, kInf, 0}),
      HC_ROW("leaky_relu", dev::leaky_relu(x, HC_T(0.5)), {-1.5, 3, kNan, 0, -0.0, kInf, -kInf}),
      HC_ROW("hardtanh", dev::hardtanh(x, HC_T(-1), HC_T(1)), {-1, 1, kNan, 0, -0.0, 1, -1}),
      HC_ROW("hardsigmoid", dev::hardsigmoid(x), {0, 1, kNan, 0.5, 0.5, 1, 0}),
      HC_ROW("hardswish", dev::hardswish(x), {-0.0, 3, kNan, 0, -0.0, kInf, kNan}),
      HC_ROW("hardshrink", dev::hardshrink(x, HC_T(3)), {0, 0, kNan, 0, 0, kInf, -kInf}),
      HC_ROW("softshrink", dev::softshrink(x, HC_T(3)), {-0.0, 0, kNan, 0, -0.0, kInf, -kInf}),
      HC_ROW("elu", dev::elu(x, HC_T(1), HC_T(1), HC_T(1)), {-0.9502, 3, kNan, 0, -0.0, kInf, -1}),
      HC_ROW("silu", dev::silu(x), {-0.1423, 2.8577, kNan, 0, -0.0, kInf, kNan}),
      HC_ROW("mish", dev::mish(x), {-0.1456, 2.9865, kNan, 0, -0.0, kInf, kNan}),
      HC_ROW("softplus", dev::softplus(x, HC_T(1), HC_T(20)), {0.0486, 3.0486, kNan, 0.6931, 0.6931, kInf, 0}),
      HC_ROW("gelu", dev::gelu(x), {-0.0040, 2.9960, kNan, 0, -0.0, kInf, kNan}),
      HC_ROW("gelu_tanh", dev::gelu_tanh(x), {-0.0036, 2.9964, kNan, 0, -0.0, kInf, kNan}),
      HC_ROW("sign", dev::sign(x), {-1, 1, 0, 0, 0, 1, -1}),
      HC_ROW("threshold_backward", dev::threshold_backward(HC_T(1), x, HC_T(0)), {0, 1, 1, 0, 0, 1, 0}),
      HC_ROW("leaky_relu_backward", dev::leaky_relu_backward(HC_T(1), x, HC_T(0.5)), {0.5, 1, 0.5, 0.5, 0.5, 1, 0.5}),
      HC_ROW("hardtanh_backward", dev::hardtanh_backward(HC_T(1), x, HC_T(-3), HC_T(3)), {0, 0, 0, 1, 1, 0, 0}),
      HC_ROW("hardsigmoid_backward", dev::hardsigmoid_backward(HC_T(1), x), {0, 0, 0, 0.1667, 0.1667, 0, 0}),
      HC_ROW("hardswish_backward", dev::hardswish_backward(HC_T(1), x), {0, 1, kNan, 0.5, 0.5, 1, 0}),
      HC_ROW("hardshrink_backward", dev::hardshrink_backward(HC_T(1), x, HC_T(3)), {0, 0, 0, 0, 0, 1, 1}),
      HC_ROW("softshrink_backward", dev::softshrink_backward(HC_T(1), x, HC_T(3)), {0, 0, 0, 0, 0, 1, 1}),
      HC_ROW("elu_backward", dev::elu_backward(HC_T(1), x, HC_T(1.5), HC_T(2), HC_T(1)), {0.1494, 2, kNan, 3, 3, 2, 0}),
      HC_ROW("elu_backward_from_result", dev::elu_backward_from_result(HC_T(1), x, HC_T(1.5), HC_T(2), HC_T(1)),
             {0, 2, kNan, 3, 3, 2, -kInf}),
      HC_ROW("silu_backward", dev::silu_backward(HC_T(1), x), {-0.0881, 1.0881, kNan, 0.5, 0.5, kNan, kNan}),
      HC_ROW("mish_backward", dev::mish_backward(HC_T(1), x), {-0.0934, 1.0211, kNan, 0.6, 0.6, kNan, kNan}),
      HC_ROW("softplus_backward", dev::softplus_backward(HC_T(1), x, HC_T(1), HC_T(20)), {0.0474, 0.9526, kNan, 0.5, 0.5, 1, 0}),
      HC_ROW("log_sigmoid_backward", dev::log_sigmoid_backward(HC_T(1), x, dev::exp(-dev::magnitude_of(x))),
             {0.9526, 0.0474, kNan, 0.5, 0.5, 0, 1}),
      HC_ROW("gelu_backward", dev::gelu_backward(HC_T(1), x), {-0.0119, 1.0119, kNan, 0.5, 0.5, kNan, kNan}),
      HC_ROW("gelu_tanh_backward", dev::gelu_tanh_backward(HC_T(1), x), {-0.0116, 1.0116, kNan, 0.5, 0.5, kNan, kNan}),
      HC_ROW("mse_loss_backward", dev::mse_loss_backward(HC_T(1), x, HC_T(0), HC_T(2)), {-6, 6, kNan, 0, -0.0, kInf, -kInf}),
      HC_ROW("xlogy", dev::xlogy(x, HC_T(0)), {kInf, -kInf, kNan, 0, 0, -kInf, kInf}),
      HC_ROW("xlogy of 0", dev::xlogy(HC_T(0), x), {0, 0, kNan, 0, 0, 0, 0}),
      HC_ROW("xlog1py", dev::xlog1py(x, HC_T(-1)), {kInf, -kInf, kNan, 0, 0, -kInf, kInf}),
      HC_ROW("xlog1py of 0", dev::xlog1py(HC_T(0), x), {0, 0, kNan, 0, 0, 0, 0}),
      HC_ROW("smooth_l1_backward", dev::smooth_l1_backward(HC_T(1), x, HC_T(0), HC_T(1), HC_T(3)), {-1, 1, kNan, 0, -0.0, 1, -1}),
      HC_ROW("huber_backward", dev::huber_backward(HC_T(1), x, HC_T(0), HC_T(1), HC_T(3)), {-3, 3, kNan, 0, -0.0, 3, -3}),
  };
  return rows;
}

void expect_special(const char* name, double at, double value, double expected) {
  const bool rounded = std::isfinite(expected) && expected != std::round(expected);
  if (rounded) {
    EXPECT_NEAR(value, expected, 1e-4) << name << " at " << at;
  } else {
    EXPECT_TRUE(value == expected || same(value, expected)) << name << " at " << at << " is " << value << ", not " << expected;
  }
}

TEST(DeviceOps, SpecialValuesAreThoseOfLibTorch) {
  for (const SpecialRow& row : special_rows()) {
    ASSERT_EQ(row.expected.size(), std::size(kArguments));
    for (size_t i = 0; i < row.expected.size(); ++i) {
      expect_special(row.name, kArguments[i], row.in_double(kArguments[i]), row.expected[i]);
      expect_special(row.name, kArguments[i], row.in_float(float(kArguments[i])), row.expected[i]);
    }
  }
}

TEST(DeviceOps, ReluKeepsTheSignOfZero) { EXPECT_TRUE(same(dev::relu(-0.0), -0.0)); }

TEST(DeviceOps, LogitBackwardAtItsLimits) {
  const double arguments[] = {-1, 0, 1, 2, 0.5, kNan, 0.05};
  const double free[] = {kNan, kInf, kInf, kNan, 4, kNan, 1 / (0.05 * 0.95)};
  const double clamped[] = {0, 0, 0, 0, 4, 0, 0};
  for (size_t i = 0; i < std::size(arguments); ++i) {
    const double without = dev::logit_backward(1.0, arguments[i], -1.0);
    EXPECT_TRUE(same(without, free[i])) << arguments[i] << " " << without;
    EXPECT_TRUE(same(dev::logit_backward(1.0, arguments[i], 0.1), clamped[i])) << arguments[i];
  }
}

/// (f(x + h) - f(x - h)) / 2 h, without the next term of the series.
double slope(const std::function<double(double)>& f, double x) {
  const double h = 1e-3;
  const double near = (f(x + h) - f(x - h)) / (2 * h), far = (f(x + 2 * h) - f(x - 2 * h)) / (4 * h);
  return near + (near - far) / 3;
}

struct GradientRow {
  const char* name;
  std::function<double(double)> forward;
  std::function<double(double, double)> backward;  // of the gradient and x
};

const std::vector<GradientRow>& gradient_rows() {
  static const std::vector<GradientRow> rows = {
      {"tanh", [](double x) { return dev::tanh(x); }, [](double g, double x) { return dev::tanh_backward(g, dev::tanh(x)); }},
      {"sigmoid", [](double x) { return dev::sigmoid(x); }, [](double g, double x) { return dev::sigmoid_backward(g, dev::sigmoid(x)); }},
      {"silu", [](double x) { return dev::silu(x); }, [](double g, double x) { return dev::silu_backward(g, x); }},
      {"mish", [](double x) { return dev::mish(x); }, [](double g, double x) { return dev::mish_backward(g, x); }},
      {"gelu", [](double x) { return dev::gelu(x); }, [](double g, double x) { return dev::gelu_backward(g, x); }},
      {"gelu_tanh", [](double x) { return dev::gelu_tanh(x); }, [](double g, double x) { return dev::gelu_tanh_backward(g, x); }},
      {"softplus", [](double x) { return dev::softplus(x, 1.5, 20.0); },
       [](double g, double x) { return dev::softplus_backward(g, x, 1.5, 20.0); }},
      {"log_sigmoid", [](double x) { return std::min(x, 0.0) - std::log1p(std::exp(-std::abs(x))); },
       [](double g, double x) { return dev::log_sigmoid_backward(g, x, dev::exp(-std::abs(x))); }},
      {"elu", [](double x) { return dev::elu(x, 1.5, 2.0, 0.5); },
       [](double g, double x) { return dev::elu_backward(g, x, 1.5, 2.0, 0.5); }},
      {"elu_from_result", [](double x) { return dev::elu(x, 1.5, 2.0, 0.5); },
       [](double g, double x) { return dev::elu_backward_from_result(g, dev::elu(x, 1.5, 2.0, 0.5), 1.5, 2.0, 0.5); }},
      {"leaky_relu", [](double x) { return dev::leaky_relu(x, 0.1); },
       [](double g, double x) { return dev::leaky_relu_backward(g, x, 0.1); }},
      {"hardtanh", [](double x) { return dev::hardtanh(x, -1.0, 2.0); },
       [](double g, double x) { return dev::hardtanh_backward(g, x, -1.0, 2.0); }},
      {"hardswish", [](double x) { return dev::hardswish(x); }, [](double g, double x) { return dev::hardswish_backward(g, x); }},
      {"hardsigmoid", [](double x) { return dev::hardsigmoid(x); }, [](double g, double x) { return dev::hardsigmoid_backward(g, x); }},
      {"hardshrink", [](double x) { return dev::hardshrink(x, 0.7); },
       [](double g, double x) { return dev::hardshrink_backward(g, x, 0.7); }},
      {"softshrink", [](double x) { return dev::softshrink(x, 0.7); },
       [](double g, double x) { return dev::softshrink_backward(g, x, 0.7); }},
      {"threshold", [](double x) { return dev::threshold(x, 0.3, 0.3); },
       [](double g, double x) { return dev::threshold_backward(g, x, 0.3); }},
      {"logit", [](double x) { return dev::logit(0.5 + x / 20, -1.0); },
       [](double g, double x) { return dev::logit_backward(g, 0.5 + x / 20, -1.0) / 20; }},
      {"mse", [](double x) { return 0.25 * (x - 0.4) * (x - 0.4); },
       [](double g, double x) { return dev::mse_loss_backward(g, x, 0.4, 0.5); }},
      {"binary_cross_entropy",
       [](double x) {
         const double p = 0.5 + x / 20;
         return -0.25 * (0.3 * std::log(p) + 0.7 * std::log(1 - p));
       },
       [](double g, double x) { return dev::binary_cross_entropy_backward(g, 0.5 + x / 20, 0.3, 0.25) / 20; }},
      {"smooth_l1",
       [](double x) {
         const double z = std::abs(x - 0.4);
         return 0.25 * (z < 1.3 ? 0.5 * z * z / 1.3 : z - 0.5 * 1.3);
       },
       [](double g, double x) { return dev::smooth_l1_backward(g, x, 0.4, 0.25, 1.3); }},
      {"huber",
       [](double x) {
         const double z = std::abs(x - 0.4);
         return 0.25 * (z < 1.3 ? 0.5 * z * z : 1.3 * (z - 0.5 * 1.3));
       },
       [](double g, double x) { return dev::huber_backward(g, x, 0.4, 0.25, 1.3); }},
  };
  return rows;
}

TEST(DeviceOps, GradientsAreTheSlopesOfTheirFunctions) {
  for (const GradientRow& row : gradient_rows()) {
    // Steps that hit no kink of any row.
    for (double x = -7.013; x < 7; x += 0.0923) {
      if (std::abs(row.backward(1, x + 0.002) - row.backward(1, x - 0.002)) > 0.05) continue;
      EXPECT_NEAR(row.backward(-1.75, x), -1.75 * slope(row.forward, x), 2e-7) << row.name << " at " << x;
    }
  }
}

TEST(DeviceOps, ExtremesPropagateNan) {
  for (const double other : {1.0, kNan, kInf, -kInf}) {
    EXPECT_TRUE(std::isnan(dev::maximum(kNan, other)) && std::isnan(dev::maximum(other, kNan)));
    EXPECT_TRUE(std::isnan(dev::minimum(kNan, other)) && std::isnan(dev::minimum(other, kNan)));
    EXPECT_TRUE(std::isnan(dev::clamp(kNan, -1.0, other)));
    EXPECT_TRUE(std::isnan(dev::clamp_min(other, kNan)) && std::isnan(dev::clamp_max(other, kNan)));
  }
  EXPECT_EQ(dev::maximum(2, 3), 3);
  EXPECT_EQ(dev::minimum(2.0f, -3.0f), -3.0f);
  EXPECT_EQ(dev::clamp(0.0, 2.0, 1.0), 1.0);
}

TEST(DeviceOps, ComparisonsWithNanAreFalseButNe) {
  EXPECT_FALSE(dev::eq(kNan, kNan) || dev::lt(kNan, 1.0) || dev::le(1.0, kNan) || dev::gt(kNan, 1.0) || dev::ge(kNan, kNan));
  EXPECT_TRUE(dev::ne(kNan, kNan) && dev::isnan(kNan) && !dev::isinf(kNan) && dev::isinf(-kInf));
}

TEST(DeviceOps, LogicAndBits) {
  EXPECT_TRUE(dev::logical_and(kNan, 1.0) && dev::logical_or(0, 5) && dev::logical_xor(0.0, 2.0) && dev::logical_not(-0.0));
}

TEST(DeviceOps, SmallIntegersWrapAround) {
  EXPECT_EQ(dev::add(dev::uint8{200}, dev::uint8{100}), 44);
  EXPECT_EQ(dev::neg(dev::uint8{1}), 255);
  EXPECT_EQ(dev::abs(dev::int16{-7}), 7);
  EXPECT_EQ(dev::sign(dev::int8{-7}), -1);
}

TEST(DeviceOps, PowScalarTreatsTheCasesOfLibTorchApart) {
  EXPECT_TRUE(same(dev::pow_scalar(-0.0, 0.5), -0.0));
  EXPECT_TRUE(same(dev::pow(-0.0, 0.5), 0.0));
  EXPECT_TRUE(std::isnan(dev::pow_scalar(-kInf, 0.5)));
  EXPECT_EQ(dev::pow_scalar(3.0f, -2.0f), 1.0f / 9.0f);
  EXPECT_EQ(dev::pow_scalar(3.0f, 3.0f), 27.0f);
  EXPECT_EQ(dev::pow_scalar(2.0, 10.0), 1024.0);
}

}  // namespace
}  // namespace hindcast::tests
