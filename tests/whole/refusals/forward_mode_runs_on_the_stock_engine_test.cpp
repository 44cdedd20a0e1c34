#include <gtest/gtest.h>
#include <torch/csrc/autograd/forward_grad.h>
#include <torch/types.h>

#include "tests/whole/refusals/refusal.h"

namespace hindcast::tests {
namespace {

TEST(ForwardModeRunsOnTheStockEngine, WhileALevelIsOpen) {
  expect_refused({engine::FallbackReason::ForwardMode}, [] {
    const auto x = at::linspace(0, 1, 4).set_requires_grad(true);
    const auto loss = x.sin().sum();
    const auto level = torch::autograd::forward_ad::enter_dual_level();
    loss.backward();
    torch::autograd::forward_ad::exit_dual_level(level);
    return std::vector{x.grad()};
  });
}

}  // namespace
}  // namespace hindcast::tests
