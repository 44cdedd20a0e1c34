// Hooks of saved tensors from C++, and those pushed by Python, nested in one another.

#include <ATen/SavedTensorHooks.h>
#include <torch/csrc/autograd/generated/Functions.h>
#include <torch/torch.h>

#include <memory>
#include <thread>

#include "hooks/saved_tensor_hooks.h"
#include "tests/engine/saved/with_and_without.h"

namespace hindcast::tests {
namespace {

bool has_hooks(const at::Tensor& y) { return dynamic_cast<torch::autograd::generated::SinBackward0&>(*y.grad_fn()).self_.has_hooks(); }

/// A Python scope, as LibTorch sees it. Here the former engine is LibTorch's own, which has no hooks for it.
struct PythonScope {
  PythonScope() {
    at::SavedTensorDefaultHooks::lazy_initialize();
    at::SavedTensorDefaultHooks::push_hooks({nullptr, nullptr}, {nullptr, nullptr});
  }
  ~PythonScope() { at::SavedTensorDefaultHooks::pop_hooks(); }
};

TEST(SavedTensorScopes, TheInnermostCountsWhetherItIsPythonsOrOurs) {
  const auto x = leaf({3});
  EXPECT_FALSE(has_hooks(x.sin()));
  {
    const OffloadToHost ours;
    EXPECT_TRUE(has_hooks(x.sin()));
    {
      const PythonScope pythons;
      EXPECT_FALSE(has_hooks(x.sin()));
      EXPECT_TRUE(has_hooks(checkpoint([](const at::Tensor& a) { return a.sin(); }, x)));
      EXPECT_FALSE(has_hooks(x.sin()));
    }
    EXPECT_TRUE(has_hooks(x.sin()));
  }
  EXPECT_FALSE(has_hooks(x.sin()));
}

TEST(SavedTensorScopes, GoInAnyOrder) {
  const auto x = leaf({3});
  auto first = std::make_unique<OffloadToHost>();
  auto second = std::make_unique<OffloadToHost>();
  auto third = std::make_unique<OffloadToHost>();
  second.reset();
  EXPECT_TRUE(has_hooks(x.sin()));
  third.reset();
  EXPECT_TRUE(has_hooks(x.sin()));
  first.reset();
  EXPECT_FALSE(has_hooks(x.sin()));
}

TEST(SavedTensorScopes, OtherThreadsHaveTheirOwn) {
  const auto x = leaf({3});
  const OffloadToHost ours;
  bool seen = true;
  std::thread([&] { seen = has_hooks(x.sin()); }).join();
  EXPECT_FALSE(seen);
}

}  // namespace
}  // namespace hindcast::tests
