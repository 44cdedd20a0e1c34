// Saved tensors that were freed or have changed: the stock engine runs what it can and raises its own error in its place.

#include <gtest/gtest.h>
#include <torch/types.h>

#include "tests/whole/refusals/refusal.h"

namespace hindcast::tests {
namespace {

using engine::FallbackReason;

/// The error's first words; `effects` gets the effects of the failed backward.
std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
  return "";
}

// Texts are compared through the outcome: the program rethrows what it caught.
TEST(AGraphUsedTwice, IsTheStockEnginesError) {
  expect_refused({FallbackReason::CollectFailed, /*taken_over=*/1, /*warns=*/false}, []() -> std::vector<at::Tensor> {
    const auto x = at::linspace(0, 1, 4).set_requires_grad(true);
    const auto loss = x.sin().sum();
    loss.backward();
    loss.backward();
    return {};
  });
}

TEST(AGraphUsedTwice, SaysWhatToDo) {
  const auto guard = hindcast::enable();
  const auto x = at::linspace(0, 1, 4).set_requires_grad(true);
  const auto loss = x.sin().sum();
  loss.backward();
  EXPECT_NE(error_of([&] { loss.backward(); }).find("Trying to backward through the graph a second time"), std::string::npos);
}

TEST(AGraphUsedTwice, HasTheEffectsUpToTheError) {
  expect_refused({FallbackReason::CollectFailed, /*taken_over=*/1, /*warns=*/false}, [] {
    const auto x = at::linspace(0, 1, 4).set_requires_grad(true), early = at::ones({4}).set_requires_grad(true);
    const auto y = x.sin();
    y.sum().backward();
    EXPECT_NE(error_of([&] { (y + early).sum().backward(); }), "");
    return std::vector{x.grad(), early.grad()};
  });
}

TEST(ATensorChangedAfterItWasSaved, IsTheStockEnginesError) {
  expect_refused({FallbackReason::CollectFailed, /*taken_over=*/0, /*warns=*/false}, []() -> std::vector<at::Tensor> {
    const auto x = at::linspace(0, 1, 4).set_requires_grad(true);
    const auto y = x * 1;
    const auto z = y.sin();
    y.mul_(2);
    z.sum().backward();  // "one of the variables needed for gradient computation has been modified by ..."
    return {};
  });
}

}  // namespace
}  // namespace hindcast::tests
