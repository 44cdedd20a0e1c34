#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include "tests/whole/refusals/refusal.h"

namespace hindcast::tests {
namespace {

TEST(InferenceModeRunsOnTheStockEngine, AroundTheBackward) {
  expect_refused({engine::FallbackReason::InferenceMode}, [] {
    const auto x = at::linspace(0, 1, 4).set_requires_grad(true);
    const auto loss = x.sin().sum();
    const c10::InferenceMode inference;
    EXPECT_FALSE(hindcast::active());
    loss.backward();
    return std::vector{x.grad()};
  });
}

}  // namespace
}  // namespace hindcast::tests
