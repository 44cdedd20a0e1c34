#include <c10/core/impl/LocalDispatchKeySet.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include "capture/recorder/libtorch_compat.h"
#include "tests/whole/refusals/refusal.h"

namespace hindcast::tests {
namespace {

using engine::FallbackReason;

template <class Guard>
void expect_refused_under(c10::DispatchKey key) {
  expect_refused({FallbackReason::DispatchState}, [=] {
    const auto x = at::linspace(0, 1, 4).set_requires_grad(true);
    const auto loss = x.sin().sum();
    const Guard guard(key);
    loss.backward();
    return std::vector{x.grad()};
  });
}

TEST(UnusualDispatchStateRunsOnTheStockEngine, AnIncludedKey) {
  expect_refused_under<c10::impl::IncludeDispatchKeyGuard>(c10::DispatchKey::Negative);
}

TEST(UnusualDispatchStateRunsOnTheStockEngine, AnExcludedKey) {
  expect_refused_under<c10::impl::ExcludeDispatchKeyGuard>(c10::DispatchKey::Functionalize);
}

TEST(UnusualDispatchStateRunsOnTheStockEngine, BelowAutograd) {
  expect_refused({FallbackReason::DispatchState}, [] {
    const auto x = at::linspace(0, 1, 4).set_requires_grad(true);
    const auto loss = x.sin().sum();
    const c10::impl::ExcludeDispatchKeyGuard below(c10::autograd_dispatch_keyset);
    loss.backward();
    return std::vector{x.grad()};
  });
}

#if HINDCAST_GRADIENT_LAYOUT_IS_A_SWITCH
TEST(UnusualDispatchStateRunsOnTheStockEngine, GradientsOfAnyLayout) {
  expect_refused({FallbackReason::DispatchState}, [] {
    const auto x = at::linspace(0, 1, 6).view({2, 3}).set_requires_grad(true);
    const auto loss = (x.t().contiguous() * 2).sum();
    auto& state = c10::AutogradState::get_tls_state();
    state.set_grad_layout_enforcement_enabled(false);
    loss.backward();
    state.set_grad_layout_enforcement_enabled(true);
    return std::vector{x.grad()};
  });
}
#endif

}  // namespace
}  // namespace hindcast::tests
