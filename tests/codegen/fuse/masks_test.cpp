// Comparisons inside kernels: gradients of clamp, minimum, maximum, where.

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/autograd.h>

#include <limits>

#include "tests/codegen/cpu/near_grads.h"
#include "tests/codegen/fuse/calls_left.h"
#include "tests/support/forward_program.h"

namespace hindcast::tests {
namespace {

// The loss of proximal policy optimisation.
at::Tensor policy_loss(const at::Tensor& log_ratio, const at::Tensor& advantage) {
  const at::Tensor ratio = log_ratio.exp();
  return -at::minimum(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean();
}

TEST(Masks, AClippedPolicyLossIsOneKernel) {
  EXPECT_EQ(calls_left([] { policy_loss(at::randn({64}).set_requires_grad(true), at::randn({64})).backward(); }),
            std::vector<std::string>{"aten::scalar_tensor"});  // a number
  expect_near_grads([](at::TensorOptions options) {
    const auto log_ratio = near_leaf({6, 11}, options), advantage = near_leaf({6, 11}, options);
    policy_loss(log_ratio, advantage).backward();
    return Tensors{log_ratio.grad(), advantage.grad()};
  });
}

TEST(Masks, WhereTiesAreShared) {
  expect_near_grads([](at::TensorOptions options) {
    const auto a = at::arange(24, options.requires_grad(false)).remainder(5).set_requires_grad(true);
    const auto b = at::arange(24, options.requires_grad(false)).remainder(3).set_requires_grad(true);
    (at::maximum(a, b) * at::minimum(a, b) + at::fmax(a, b)).sum().backward();
    return Tensors{a.grad(), b.grad()};
  });
}

TEST(Masks, OfNaNAndInfinities) {
  expect_near_grads([](at::TensorOptions options) {
    constexpr double kNaN = std::numeric_limits<double>::quiet_NaN(), kInfinity = std::numeric_limits<double>::infinity();
    const auto x = at::tensor({kNaN, kInfinity, -kInfinity, -0.0, 0.0, 2.0, -3.0}, at::kDouble).to(options.dtype()).set_requires_grad(true);
    const auto y = near_leaf({7}, options);
    (at::maximum(x, y) + x.clamp(-1, 1) + at::where(x == 0, y * 2, y * 3)).sum().backward();
    return Tensors{x.grad(), y.grad()};
  });
}

// Limits that are tensors, a broadcast side, combined masks, and a mask that a product reads.
TEST(Masks, OfTensorsAndTogether) {
  expect_near_grads([](at::TensorOptions options) {
    const auto x = near_leaf({5, 8}, options), least = near_leaf({8}, options), most = near_leaf({5, 1}, options);
    const auto y = at::clamp(x, at::minimum(least, most), at::maximum(least, most) + 0.25);
    const auto mask = at::logical_or(x > 0.5, (x < -0.5).logical_and(x > -1)).logical_not();
    (y * mask + x.abs().masked_fill(mask, 0.5)).square().sum().backward();
    return Tensors{x.grad(), least.grad(), most.grad()};
  });
}

// As LibTorch reads them: every byte other than 0 is true.
TEST(Masks, OfBytesThatAreNeitherZeroNorOne) {
  const at::Tensor mask = (at::arange(5 * 48).remainder(5) * 63).to(at::kByte).view(at::kBool).view({5, 48}), row = mask[1];
  expect_near_grads([&](at::TensorOptions options) {
    const auto x = near_leaf({5, 48}, options), y = near_leaf({5, 48}, options);
    const auto both = at::logical_and(mask, x > 0).logical_or(row);
    (x * mask + at::where(mask, x * y, y * 2) + x.masked_fill(row, 0.5) * y.masked_fill(both, 2)).square().sum().backward();
    return Tensors{x.grad(), y.grad()};
  });
  expect_near_grads([&](at::TensorOptions options) {
    const auto x = near_leaf({5, 48}, options), y = near_leaf({5, 48}, options);
    (at::softmax(x * mask, 1) * at::where(row, y, x)).sum(1).square().sum().backward();
    return Tensors{x.grad(), y.grad()};
  });
}

TEST(Masks, OfShortFloats) {
  for (const auto type : {at::kBFloat16, at::kHalf}) {
    expect_near_grads([type](at::TensorOptions options) {
      const auto x = near_leaf({9, 16}, options), y = near_leaf({9, 16}, options);
      const auto a = x.to(type), b = y.to(type);
      // 0.3 is no 16-bit float: ATen rounds it first.
      (at::maximum(a, b).clamp_min(0.3) * at::relu(a)).sum().backward();
      return Tensors{x.grad(), y.grad()};
    });
  }
}

// ATen compares with the number rounded to the type of the operand: 0.3 in half is larger than 0.3.
TEST(Masks, OfNumbersBesideShortFloats) {
  for (const auto type : {at::kBFloat16, at::kHalf}) {
    const Tensors every = {at::arange(-32768, 32768, at::kShort).view(type)};
    for (const double number : {0.3, 0.1, 0.0, 1e-9, 3e4}) {
      SCOPED_TRACE(testing::Message() << c10::toString(type) << ", " << number);
      const Function function = [=](const Tensors& in) {
        const at::Tensor& x = in[0];
        Tensors masks = {x.eq(number), x.ne(number), x.lt(number), x.le(number), x.gt(number), x.ge(number)};
        for (at::Tensor& mask : masks) mask = mask.to(type).neg();
        return masks;
      };
      const ForwardProgram program(function, every);
      EXPECT_EQ(program.left(), Names());
      const Tensors seen = program.run(every), stock = function(every);
      for (size_t i = 0; i < stock.size(); ++i) EXPECT_TRUE(at::equal(seen[i], stock[i])) << i;
    }
  }
}

// A formula over rows after one with masks.
TEST(Masks, ByRows) {
  expect_near_grads(
      [](at::TensorOptions options) {
        const auto x = near_leaf({12, 40}, options), weight = near_leaf({40}, options), bias = near_leaf({40}, options);
        (at::minimum(at::layer_norm(x, {40}, weight, bias), x) * 2).clamp(-2, 2).sum().backward();
        return Tensors{x.grad(), weight.grad(), bias.grad()};
      },
      {.units_in_double = 32});  // a norm's gradient is a difference
}

// The second derivative of softplus multiplies by a comparison converted to numbers.
TEST(Masks, AsNumbers) {
  const auto twice = [](const at::Tensor& x) {
    const at::Tensor slope = torch::autograd::grad({at::softplus(x, 2, 3).sum()}, {x}, {}, {}, /*create_graph=*/true)[0];
    slope.square().sum().backward();
  };
  const Tensors x = {at::randn({4, 50})};
  const ForwardProgram program([](const Tensors& x) { return Tensors{x[0].sin() * (x[0] > 0.5).to(at::kFloat)}; }, x);
  EXPECT_EQ(program.left(), Names());
  EXPECT_EQ(program.kernels(), 1U);
  expect_near_grads([&](at::TensorOptions options) {
    const auto x = near_leaf({4, 50}, options);
    twice(x);
    return Tensors{x.grad()};
  });
  expect_near_grads([&](at::TensorOptions options) {
    const auto x = near_leaf({4, 50}, options), y = near_leaf({50}, options);
    (x * (x > y).to(options.dtype()).t().contiguous().t() + (y > 0).to(options.dtype())).tanh().sum().backward();
    return Tensors{x.grad(), y.grad()};
  });
}

// Integers are left to ATen.
TEST(Masks, OfIntegersAreATens) {
  expect_near_grads([](at::TensorOptions options) {
    const auto x = near_leaf({4, 6}, options);
    const auto ids = at::arange(6);
    (at::where(ids > 2, x * 2, x.neg()) * (ids == 1)).tanh().sum().backward();
    return Tensors{x.grad()};
  });
}

}  // namespace
}  // namespace hindcast::tests
