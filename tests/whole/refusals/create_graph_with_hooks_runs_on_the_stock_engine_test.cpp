#include <gtest/gtest.h>
#include <torch/autograd.h>

#include "tests/whole/refusals/refusal.h"

namespace hindcast::tests {
namespace {

using engine::FallbackReason;

at::Tensor hooked(const at::Tensor& tensor) {
  tensor.register_hook([](const at::Tensor& grad) { return grad * 2; });
  return tensor;
}

TEST(CreateGraphWithHooksRunsOnTheStockEngine, Backward) {
  expect_refused({FallbackReason::CreateGraph}, [] {
    const auto x = at::linspace(0, 1, 4).set_requires_grad(true);
    hooked(x.sin()).sum().backward({}, /*retain_graph=*/true, /*create_graph=*/true);
    const at::Tensor grad = x.grad().detach().clone();
    EXPECT_TRUE(x.grad().requires_grad());
    x.mutable_grad() = at::Tensor();  // the gradient's graph holds x, x its gradient
    return std::vector{grad};
  });
}

TEST(CreateGraphWithHooksRunsOnTheStockEngine, TheGradientOfAGradientIsOursAgain) {
  expect_refused({FallbackReason::CreateGraph, /*taken_over=*/1}, [] {
    const auto x = at::linspace(0, 1, 4).set_requires_grad(true);
    const auto slope = torch::autograd::grad({hooked(x.sin()).sum()}, {x}, {}, /*retain_graph=*/{}, /*create_graph=*/true)[0];
    slope.pow(2).sum().backward();
    return std::vector{slope.detach(), x.grad()};
  });
}

}  // namespace
}  // namespace hindcast::tests
