// A hook of a stock backward creates a guard, on this thread or, on a machine with an accelerator, on one of the engine's device threads.
// Inside a stock backward, all backwards run on the stock engine.

#include <gtest/gtest.h>
#include <torch/autograd.h>

#include "engine/counters/fallback.h"
#include "hindcast/hindcast.h"

namespace hindcast::tests {
namespace {

TEST(AGuardMadeInsideAStockBackward, WaitsForItsEnd) {
  hindcast::reset();
  const auto x = at::linspace(0, 1, 4).set_requires_grad(true), y = at::linspace(1, 2, 4).set_requires_grad(true);
  const auto inner = y.exp().sum();
  x.register_hook([=](at::Tensor) {
    const auto guard = hindcast::enable();
    EXPECT_FALSE(hindcast::active());
    inner.backward();
  });
  x.sin().sum().backward();
  EXPECT_TRUE(y.grad().equal(y.detach().exp()));
  EXPECT_EQ(hindcast::stats().backwards, 0U);
  EXPECT_EQ(hindcast::stats().fallbacks_by_reason,
            (std::map<std::string, uint64_t>{{engine::name(engine::FallbackReason::InsideHook), 1}}));
}

}  // namespace
}  // namespace hindcast::tests
