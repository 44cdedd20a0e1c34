#include <gtest/gtest.h>
#include <torch/autograd.h>

#include "tests/whole/refusals/refusal.h"

namespace hindcast::tests {
namespace {

using engine::FallbackReason;

TEST(ABackwardInsideAHookRunsOnTheStockEngine, OfAnotherGraph) {
  expect_refused({FallbackReason::InsideHook, /*taken_over=*/1}, [] {
    const auto x = at::linspace(0, 1, 4).set_requires_grad(true), y = at::linspace(1, 2, 4).set_requires_grad(true);
    const auto inner = y.exp().sum();
    x.register_hook([=](at::Tensor grad) {
      inner.backward();
      return grad * y.grad();
    });
    x.sin().sum().backward();
    return std::vector{x.grad(), y.grad()};
  });
}

TEST(ABackwardInsideAHookRunsOnTheStockEngine, GradToo) {
  expect_refused({FallbackReason::InsideHook, /*taken_over=*/1}, [] {
    const auto x = at::linspace(0, 1, 4).set_requires_grad(true), y = at::linspace(1, 2, 4).set_requires_grad(true);
    x.register_hook([=](at::Tensor grad) {
      const at::AutoGradMode grad_mode(true);
      return grad + torch::autograd::grad({y.exp().sum()}, {y})[0];
    });
    x.sin().sum().backward();
    return std::vector{x.grad()};
  });
}

struct BackwardInside : torch::autograd::Function<BackwardInside> {
  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& x) { return x * 2; }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*, torch::autograd::variable_list gradients) {
    const at::AutoGradMode grad_mode(true);
    const auto y = gradients[0].detach().clone().set_requires_grad(true);
    y.exp().sum().backward();
    return {y.grad()};
  }
};

TEST(ABackwardInsideAHookRunsOnTheStockEngine, InsideANodeToo) {
  expect_refused({FallbackReason::InsideHook, /*taken_over=*/1}, [] {
    const auto x = at::linspace(0, 1, 4).set_requires_grad(true);
    BackwardInside::apply(x.sin()).sum().backward();
    return std::vector{x.grad()};
  });
}

}  // namespace
}  // namespace hindcast::tests
