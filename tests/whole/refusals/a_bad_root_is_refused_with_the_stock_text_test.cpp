#include <gtest/gtest.h>
#include <torch/autograd.h>

#include "hindcast/hindcast.h"
#include "tests/support/same_grads.h"

namespace hindcast::tests {
namespace {

/// Both engines refuse it, with the same text, which contains `part`.
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

TEST(ABadRoot, SeveralOfWhichOneIsNoScalar) {
  expect_same_error("grad can be implicitly created only for scalar outputs", [] {
    torch::autograd::backward({leaf().sum(), leaf().sin()});
  });
}

TEST(ABadRoot, LosesNothing) {
  hindcast::reset();
  const auto guard = hindcast::enable();
  const auto x = leaf();
  const auto y = x.sin();
  EXPECT_ANY_THROW(y.backward());
  EXPECT_TRUE(hindcast::active());
  EXPECT_FALSE(x.grad().defined());
  y.sum().backward();  // the graph is still there
  EXPECT_TRUE(x.grad().equal(x.detach().cos()));
  EXPECT_EQ(hindcast::stats().backwards, 1U);
}

TEST(ABadRoot, NoneAtAllIsNoError) {
  const auto program = [](uint64_t) -> std::vector<at::Tensor> {
    torch::autograd::backward({});
    return {};
  };
  EXPECT_EQ(run_stock(program, 1).error, "");
  EXPECT_EQ(run_hindcast(program, 1).error, "");
}

}  // namespace
}  // namespace hindcast::tests
