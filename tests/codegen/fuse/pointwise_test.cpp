// Chains of pointwise ops as one kernel.

#include <ATen/ATen.h>
#include <ATen/ScalarOps.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/codegen/cpu/near_grads.h"
#include "tests/support/log_capture.h"

namespace hindcast::tests {
namespace {

TEST(Pointwise, AChain) {
  expect_near_grads([](at::TensorOptions options) {
    const auto x = near_leaf({5, 7}, options);
    x.mul(0.5).sin().tanh().mul(x).sum().backward();
    return std::vector{x.grad()};
  });
}

TEST(Pointwise, EveryActivation) {
  expect_near_grads([](at::TensorOptions options) {
    const auto x = near_leaf({33}, options);
    auto y = x;
    y = y.relu() + y.sigmoid() - at::silu(y);
    y = at::gelu(y) * at::gelu(y, "tanh") / (y.exp() + 1);
    y = at::threshold(y, 0.1, 0) + y.neg().abs() + (y * y + 1).sqrt() + (y * y + 2).rsqrt() + (y * y + 1).reciprocal() + (y * y + 1).log() +
        y.cos();
    y.sum().backward();
    return std::vector{x.grad()};
  });
}

// Python's `x * 1.001` and `x / 3` save such tensors.
TEST(Pointwise, NumbersOfOtherTypes) {
  const auto program = [](at::TensorOptions options) {
    const auto x = near_leaf({5, 7}, options);
    const auto factor = at::scalar_tensor(1.001, at::kDouble), divisor = at::scalar_tensor(3, at::kLong);
    (x.tanh() * factor / divisor).sigmoid().mul(factor).sum().backward();
    return std::vector{x.grad()};
  };
  expect_near_grads(program);
  EXPECT_EQ(hindcast::stats().fused_graphs, 1U);
  LogCapture logs("fusion");
  hindcast::reset();
  const auto guard = hindcast::enable(fused_options());
  program(at::kFloat);
  EXPECT_EQ(logs.count(" in one kernel"), 1U) << logs.text();
  EXPECT_EQ(logs.count("5 ops in one kernel"), 1U) << logs.text();
  // ATen rounds the number to 16 bits in some ops and not in others.
  expect_near_grads(
      [](at::TensorOptions options) {
        const auto x = near_leaf({5, 7}, options);
        const auto factor = at::scalar_tensor(1.001, at::kDouble);
        (x.to(at::kBFloat16).tanh() * factor + factor).sigmoid().sum().backward();
        return std::vector{x.grad()};
      },
      {.fused_graphs = 0});
}

// A loss such as `0.5 * a.mean() - 0.01 * b.sum()`.
TEST(Pointwise, NumbersBesideTensorsWithoutDims) {
  const auto program_with = [](const at::Tensor& factor) {
    return [factor](at::TensorOptions options) {
      const auto x = near_leaf({5, 7}, options);
      const auto loss = (x.sum() * factor).sin() * factor;
      loss.backward();
      return std::vector{x.grad()};
    };
  };
  const auto number = program_with(at::native::wrapped_scalar_tensor(1.001));
  expect_near_grads(number);
  LogCapture logs("fusion");
  hindcast::reset();
  {
    const auto guard = hindcast::enable(fused_options());
    number(at::kFloat);
  }
  EXPECT_EQ(logs.count("4 ops in one kernel"), 1U) << logs.text();
  expect_near_grads(program_with(at::scalar_tensor(1.001, at::kDouble)));  // no number: the loss is a double
}

TEST(Pointwise, LeavesGetBuffersOfTheirOwn) {
  expect_near_grads([](at::TensorOptions options) {
    const auto a = near_leaf({2, 4}, options), b = near_leaf({2, 4}, options), c = near_leaf({2, 4}, options),
               d = near_leaf({2, 4}, options);
    (a + b + c + d).cos().cos().sum().backward();
    EXPECT_NE(a.grad().data_ptr(), b.grad().data_ptr());
    EXPECT_NE(c.grad().data_ptr(), d.grad().data_ptr());
    EXPECT_NE(a.grad().data_ptr(), d.grad().data_ptr());
    return std::vector{a.grad(), b.grad(), c.grad(), d.grad()};
  });
}

TEST(Pointwise, GradientsAccumulate) {
  expect_near_grads([](at::TensorOptions options) {
    const auto a = near_leaf({3, 4}, options), b = near_leaf({3, 4}, options);
    const auto loss = (a * b).sin().mul(b).sum();
    loss.backward({}, /*retain_graph=*/true);
    loss.backward();
    return std::vector{a.grad(), b.grad()};
  });
}

// All positive: the gradients of broadcast operands are sums, and must not cancel.
TEST(Pointwise, Broadcasts) {
  expect_near_grads([](at::TensorOptions options) {
    const auto positive = [&](at::IntArrayRef sizes) { return at::rand(sizes).add(0.5).to(options.dtype()).set_requires_grad(true); };
    const auto x = positive({6, 5, 4}), row = positive({4}), column = positive({5, 1}), one = positive({1});
    ((x * row).sigmoid() * column * one).tanh().mul(x).sum().backward();
    return std::vector{x.grad(), row.grad(), column.grad(), one.grad()};
  });
}

TEST(Pointwise, TransposedAndSlicedOperands) {
  expect_near_grads([](at::TensorOptions options) {
    const auto x = near_leaf({6, 5}, options), y = near_leaf({5, 12}, options);
    ((x.t() * y.slice(1, 0, 12, 2)).sin() * x.t()).tanh().sum().backward();
    return std::vector{x.grad(), y.grad()};
  });
}

TEST(Pointwise, ChannelsLast) {
  expect_near_grads([](at::TensorOptions options) {
    const auto x = near_leaf({2, 3, 4, 5}, options);
    const auto y = x.contiguous(at::MemoryFormat::ChannelsLast);
    (y.sin() * y).tanh().sum().backward();
    return std::vector{x.grad()};
  });
}

TEST(Pointwise, NoDimsAndNoElements) {
  expect_near_grads([](at::TensorOptions options) {
    const auto scalar = near_leaf({}, options), empty = near_leaf({0, 3}, options);
    (scalar.sin() * scalar).tanh().backward();
    (empty.sin() * empty).tanh().sum().backward();
    return std::vector{scalar.grad(), empty.grad()};
  });
}

TEST(Pointwise, MasksAndDropout) {
  expect_near_grads([](at::TensorOptions options) {
    const auto x = near_leaf({64, 3}, options);
    const auto mask = x.detach() > 0.2;
    const auto y = x.sin().masked_fill(mask, 3).mul(x) + at::where(mask, x.cos(), x.tanh());
    y.mul(0.7).tanh().sum().backward();
    return std::vector{x.grad()};
  });
}

TEST(Pointwise, InfinitiesAndNaNPass) {
  expect_near_grads([](at::TensorOptions options) {
    const auto x = at::tensor({0., -0., 1e30, -1e30, 88., -104., INFINITY, -INFINITY, NAN}).to(options.dtype()).set_requires_grad(true);
    (x.exp().mul(x).relu() + x.tanh().sigmoid()).sum().backward();
    return std::vector{x.grad()};
  });
}

TEST(Pointwise, LargeTensorsOnSeveralThreads) {
  expect_near_grads([](at::TensorOptions options) {
    const auto x = near_leaf({301, 1009}, options), row = near_leaf({1009}, options);
    (x.sin() * row).tanh().mul(x).sum().backward();
    return std::vector{x.grad()};
  });
}

TEST(Pointwise, MoreOpsThanOneKernelHolds) {
  expect_near_grads([](at::TensorOptions options) {
    const auto x = near_leaf({9}, options);
    auto y = x;
    for (int i = 0; i < 60; ++i) y = (y * 1.01).tanh();
    y.sum().backward();
    return std::vector{x.grad()};
  });
}

// Results reuse the memory of operands that nobody else holds, and of no others.
TEST(Pointwise, OperandsThatOthersHoldStayAsTheyAre) {
  std::vector<float> lent(1 << 16, 0.5F);
  const auto program = [&](const at::Tensor& held) {
    const auto x = at::ones({1 << 16}).set_requires_grad(true);
    const auto root = at::full({1 << 16}, 0.25);
    (x.mul(2).tanh() * at::from_blob(lent.data(), {1 << 16}) * held).backward(root);
    EXPECT_TRUE(at::equal(root, at::full({1 << 16}, 0.25)));
    return x.grad();
  };
  const auto held = at::full({1 << 16}, 3.0);
  const auto stock = program(held);
  const auto guard = hindcast::enable(fused_options());
  for (int step = 0; step < 3; ++step) EXPECT_TRUE(at::allclose(program(held), stock));
  EXPECT_TRUE(at::equal(held, at::full({1 << 16}, 3.0)));
  EXPECT_EQ(lent, std::vector<float>(1 << 16, 0.5F));
}

}  // namespace
}  // namespace hindcast::tests
