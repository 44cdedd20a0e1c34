// Which of a thread's dispatch keys do not change what a replay computes.

#if __has_include(<ATen/NamedTensorUtils.h>)  // LibTorch 2.11 and 2.12 have named tensors
#include <ATen/NamedTensorUtils.h>
#endif
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include "hindcast/hindcast.h"

namespace hindcast::tests::usual_dispatch_state_test {
namespace {

void expect_two_hits() {
  hindcast::reset();
  const auto guard = hindcast::enable();
  for (int i = 0; i < 3; ++i) {
    const auto x = at::linspace(0, 1, 4).set_requires_grad(true);
    x.sin().sum().backward();
  }
  EXPECT_EQ(hindcast::stats().hits, 2U);
}

// LibTorch leaves it set after a view in place of a wrapper subclass.
TEST(UsualDispatchState, TheLowestKeyOfAll) {
  const c10::impl::IncludeDispatchKeyGuard dense(
      c10::DispatchKeySet(c10::DispatchKeySet::RAW, c10::DispatchKeySet(c10::DispatchKey::Dense).raw_repr()));
  expect_two_hits();
  const c10::impl::IncludeDispatchKeyGuard cpu(c10::DispatchKey::CPU);
  expect_two_hits();
}

#if __has_include(<ATen/NamedTensorUtils.h>)
// LibTorch disables names around each node's apply().
TEST(UsualDispatchState, WithoutNames) {
  const at::NoNamesGuard no_names;
  expect_two_hits();
}
#endif

}  // namespace
}  // namespace hindcast::tests::usual_dispatch_state_test
