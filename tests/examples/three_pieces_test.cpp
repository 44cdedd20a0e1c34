// A forward in three pieces, with code between them that no tracer of forwards could follow: one backward graph.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <sstream>

#include "hindcast/hindcast.h"

namespace hindcast::tests {
namespace {

at::Tensor loss_of(const at::Tensor& x) {
  at::Tensor y = x + 10;                         // first piece
  if (y.mean().item<double>() > 0) y = y.sin();  // a value decides
  std::ostringstream text;
  text << y;  // the second piece looks at values
  y = y * static_cast<double>(text.str().empty() ? 0 : 2);
  return y.sum();  // third piece
}

TEST(ThreePieces, GiveOneGraph) {
  const auto x = at::zeros({10, 10}).set_requires_grad(true);
  const auto loss = loss_of(x);
  hindcast::reset();
  const auto guard = hindcast::enable(hindcast::compilers::eager());
  loss.backward();
  EXPECT_EQ(hindcast::stats().unique_graphs, 1U);
  EXPECT_TRUE(x.grad().equal(2 * at::cos(at::full({10, 10}, 10.))));
}

TEST(ThreePieces, TheGraphHoldsTheNodesOfAllThree) {
  hindcast::reset();
  std::ostringstream printed;
  const auto guard = hindcast::enable(hindcast::compilers::print(printed));
  loss_of(at::zeros({10, 10}).set_requires_grad(true)).backward();
  for (const char* node : {"SumBackward0", "MulBackward1", "SinBackward0", "AccumulateGrad"}) {
    EXPECT_THAT(printed.str(), testing::HasSubstr(node));
  }
}

TEST(ThreePieces, AForwardWithoutAGuardIsFoundAgain) {
  hindcast::reset();
  for (int step = 0; step < 3; ++step) {
    const auto loss = loss_of(at::zeros({10, 10}).set_requires_grad(true));
    const auto guard = hindcast::enable();
    loss.backward();
  }
  EXPECT_EQ(hindcast::stats().unique_graphs, 1U);
  EXPECT_EQ(hindcast::stats().hits, 2U);
}

}  // namespace
}  // namespace hindcast::tests
