// The meta device stands for every device that is neither the CPU nor CUDA: it computes only sizes, and needs no hardware.

#include <gtest/gtest.h>
#include <torch/autograd.h>
#include <torch/types.h>

#include "tests/whole/refusals/refusal.h"

namespace hindcast::tests {
namespace {

using engine::FallbackReason;

// Meta tensors have no elements to compare: a backward gives only their form.
at::Tensor form_of(const at::Tensor& tensor) {
  std::vector<int64_t> form{static_cast<int64_t>(tensor.device().type()), static_cast<int64_t>(tensor.scalar_type())};
  form.insert(form.end(), tensor.sizes().begin(), tensor.sizes().end());
  form.insert(form.end(), tensor.strides().begin(), tensor.strides().end());
  return at::tensor(form);
}

TEST(AnotherDeviceRunsOnTheStockEngine, WholeGraphs) {
  expect_refused({FallbackReason::OtherDevice}, [] {
    const auto x = at::empty({4, 3}, at::kMeta).set_requires_grad(true);
    x.sin().t().sum().backward();
    return std::vector{form_of(x.grad())};
  });
}

TEST(AnotherDeviceRunsOnTheStockEngine, GraphsThatAreOnlyPartlyThere) {
  expect_refused({FallbackReason::OtherDevice}, [] {
    const auto x = at::empty({4, 3}, at::kMeta).set_requires_grad(true);
    const auto y = at::linspace(0, 1, 12).reshape({4, 3}).set_requires_grad(true);
    torch::autograd::backward({x.sin().sum(), y.sin().sum()}, {at::ones({}, at::kMeta), at::ones({})});
    return std::vector{form_of(x.grad()), y.grad()};
  });
}

}  // namespace
}  // namespace hindcast::tests
