#include <gtest/gtest.h>
#include <torch/autograd.h>

#include "engine/hindcast.h"
#include "tests/support/same_grads.h"

namespace hindcast::tests {
namespace {

/// Both engines refuse it, with the same text, which holds `part`.
void expect_same_error(const char* part, const std::function<void()>& action) {
  const auto program = [&](uint64_t) -> std::vector<at::Tensor> {
    action();
    return {};
  };
  const Outcome stock = run_stock(program, 1);
  EXPECT_NE(stock.error.find(part), std::string::npos) << stock.error;
  hindcast::reset();
  expect_equal(stock, run_hindcast(program, 1));
}

at::Tensor leaf() { return at::ones({3}).set_requires_grad(true); }

TEST(ABadRoot, ANonScalarNeedsAGradient) {
  expect_same_error("grad can be implicitly created only for scalar outputs", [] { leaf().sin().backward(); });
}

TEST(ABadRoot, NeedsAGradFn) {
  expect_same_error("does not require grad and does not have a grad_fn", [] { at::ones({}).backward(); });
}

TEST(ABadRoot, GradientOfAnotherShape) {
  expect_same_error("shape", [] { leaf().sin().backward(at::ones({2})); });
}

TEST(ABadRoot, GradOfWhatIsNotInTheGraph) {
  expect_same_error("appears to not have been used in the graph", [] {
    const auto unused = leaf();
    torch::autograd::grad({leaf().sin().sum()}, {unused});
  });
}

}  // namespace
}  // namespace hindcast::tests
