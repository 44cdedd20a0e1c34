// sin, cos and tan inside of kernels.

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/fusion/near_grads.h"

namespace hindcast::tests {
namespace {

// Side by side, as a kernel has a form for those near 0: blocks that are near in float and double, near in double, and far.
TEST(Angles, NearAndFar) {
  for (const double size : {1e2, 1e6, 1e30}) {
    for (const double one : {0.0, 6e4, 1e5, 2e9, 1e20, double{INFINITY}, std::nan("")}) {
      SCOPED_TRACE(testing::Message() << size << ", one of " << one);
      expect_near_grads([&](at::TensorOptions options) {
        auto angles = at::randn({3, 1700}).mul(size);
        angles.select(1, 1500).fill_(one);
        const auto x = angles.to(at::kFloat).to(options.dtype()).set_requires_grad(true), bias = near_leaf({1700}, options);
        (x.sin() * x.cos() * 2 + bias.cos()).sum().backward();
        return std::vector{x.grad(), bias.grad()};
      });
    }
  }
}

// Each gradient element by element, since a sum over angles of all exponents would hide the small ones.
TEST(Angles, EveryExponentOfDoubles) {
  const auto gradient = [] {
    at::manual_seed(3);
    const auto exponents = at::arange(-1074, 1024, at::kDouble).repeat({8});
    const auto x = at::ldexp(at::rand({exponents.numel()}, at::kDouble).add(1), exponents).set_requires_grad(true);
    x.sin().mul(2).sum().backward();
    return x.grad();
  };
  hindcast::reset();
  const auto stock = gradient();
  const auto guard = hindcast::enable(fused_options());
  const auto ours = gradient();
  EXPECT_EQ(hindcast::stats().fused_graphs, 1U);
  EXPECT_LE((ours - stock).abs().div(stock.abs()).max().item<double>(), 4 * std::numeric_limits<double>::epsilon());
}

// Operands whose memory lies in other ways than the result.
TEST(Angles, OverStrides) {
  expect_near_grads([](at::TensorOptions options) {
    const auto x = at::randn({40, 30}).mul(1e11).to(options.dtype()).set_requires_grad(true), y = near_leaf({30, 80}, options);
    (x.t().sin() * y.slice(1, 0, 80, 2)).tan().mul(0.5).sum().backward();
    return std::vector{x.grad(), y.grad()};
  });
}

TEST(Angles, OverRows) {
  for (const double size : {1.0, 1e11}) {
    expect_near_grads([&](at::TensorOptions options) {
      const auto x = at::randn({6, 50}).mul(size).to(options.dtype()).set_requires_grad(true), y = near_leaf({6, 50}, options);
      (at::softmax(x.sin(), 1) * y.tanh()).sum().backward();
      return std::vector{x.grad(), y.grad()};
    });
  }
}

}  // namespace
}  // namespace hindcast::tests
