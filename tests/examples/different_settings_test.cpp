// A forward without hindcast, its backward with settings of its own.

#include <gtest/gtest.h>
#include <torch/types.h>

#include "hindcast/graph.h"
#include "hindcast/hindcast.h"

namespace hindcast::tests {
namespace {

class DifferentSettings : public testing::Test {
 protected:
  void SetUp() override { hindcast::reset(); }

  at::Tensor loss(int64_t batch) { return (at::ones({batch, 4}).mm(w_.t()).tanh() * 2).sum(); }
  at::Tensor w_ = at::randn({3, 4}).set_requires_grad(true);
};

TEST_F(DifferentSettings, TheGuardConcernsTheBackwardNotTheForward) {
  const auto built_without = loss(2);
  at::Tensor built_with;
  {
    const auto guard = hindcast::enable();
    built_without.backward();
    built_with = loss(2);
  }
  const at::Tensor first = w_.grad().clone();
  EXPECT_EQ(hindcast::stats().backwards, 1U);
  w_.mutable_grad() = at::Tensor();
  built_with.backward();
  EXPECT_EQ(hindcast::stats().backwards, 1U) << "the second backward is the stock engine's";
  EXPECT_TRUE(w_.grad().equal(first));
}

TEST_F(DifferentSettings, OneLossMayGoThroughBothEngines) {
  const auto value = loss(2);
  value.backward({}, /*retain_graph=*/true);
  const at::Tensor stock = w_.grad().clone();
  w_.mutable_grad() = at::Tensor();
  const auto guard = hindcast::enable();
  value.backward();
  EXPECT_EQ(hindcast::stats().backwards, 1U);
  EXPECT_TRUE(w_.grad().equal(stock));
}

TEST_F(DifferentSettings, EveryGuardHasItsOwnOptions) {
  {
    Options options;
    options.dynamic = Dynamic::Never;
    const auto guard = hindcast::enable(options);
    for (const int64_t batch : {2, 3, 4}) loss(batch).backward();
    EXPECT_EQ(hindcast::stats().unique_graphs, 3U);
  }
  hindcast::reset();
  const auto guard = hindcast::enable();
  for (const int64_t batch : {2, 3, 4}) loss(batch).backward();
  EXPECT_EQ(hindcast::stats().unique_graphs, 2U);
}

TEST_F(DifferentSettings, WhatAnotherCompilerMadeIsNotUsed) {
  int first = 0, second = 0;
  const auto counting = [](int& compiled) {
    return [&compiled](const std::shared_ptr<const Graph>& graph) {
      ++compiled;
      return std::vector<SegmentFunction>(graph->segments().size());
    };
  };
  const Compiler one(counting(first)), other(counting(second));
  for (const Compiler& compiler : {one, other, one, other}) {
    const auto guard = hindcast::enable(compiler);
    loss(2).backward();
  }
  EXPECT_EQ(first, 1);
  EXPECT_EQ(second, 1);
}

}  // namespace
}  // namespace hindcast::tests
