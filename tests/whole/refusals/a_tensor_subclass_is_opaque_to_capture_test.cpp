// A gradient with its own dispatch (here: functionalization's wrapper, which C++ can create) is not inspected: the nodes that it reaches
// run as themselves.

#include <ATen/FunctionalTensorWrapper.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include "hindcast/hindcast.h"
#include "tests/support/same_grads.h"

namespace hindcast::tests {
namespace {

TEST(ATensorSubclassAsAGradient, GivesWhatTheStockEngineGives) {
  hindcast::reset();
  expect_same_grads([](uint64_t seed) {
    const auto x = at::linspace(0, static_cast<double>(seed), 4).set_requires_grad(true);
    const auto gradient = at::functionalization::impl::to_functional_tensor(at::full({4}, 2.));
    x.sin().backward(gradient);
    EXPECT_TRUE(at::functionalization::impl::isFunctionalTensor(x.grad()));
    at::functionalization::impl::sync(x.grad());
    return std::vector{at::functionalization::impl::from_functional_tensor(x.grad())};
  });
  EXPECT_EQ(hindcast::stats().opaque_nodes.count("SinBackward0"), 1U) << hindcast::report();
}

}  // namespace
}  // namespace hindcast::tests
