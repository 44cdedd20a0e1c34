// Options::deterministic: equal inputs give equal bits from the first backward on, whatever came before.

#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "hindcast/graph.h"
#include "hindcast/hindcast.h"

namespace hindcast::tests {
namespace {

using Gradients = std::vector<at::Tensor>;

/// A step that kernels round differently from ATen: norms, long sums, transcendental functions; with hooks and slices.
Gradients step(int64_t batch, bool with_hook = false) {
  at::manual_seed(3);
  const auto w = at::randn({64, 96}).set_requires_grad(true), b = at::randn({96}).set_requires_grad(true),
             gain = at::randn({96}).set_requires_grad(true);
  const auto x = at::randn({batch, 64});
  auto h = at::gelu(at::addmm(b, x, w));
  if (with_hook) h.register_hook([](const at::Tensor& gradient) { return gradient * 1.25; });
  h = at::layer_norm(h, {96}, gain).softmax(1) * h.sin();
  (h.slice(1, 0, 48).tanh().pow(3).mean() + h.slice(1, 48).sigmoid().log().mean()).backward();
  return {w.grad(), b.grad(), gain.grad()};
}

void expect_equal(const Gradients& ours, const Gradients& stock, const std::string& where) {
  for (size_t i = 0; i < stock.size(); ++i) EXPECT_TRUE(at::equal(ours[i], stock[i])) << where << ", gradient " << i;
}

Options deterministic() {
  Options options;
  options.compiler = compilers::fused();
  options.deterministic = true;
  return options;
}

TEST(Deterministic, TwentyEqualStepsAreEqual) {
  hindcast::reset();
  const auto stock = step(17);
  const auto guard = hindcast::enable(deterministic());
  for (int i = 0; i < 20; ++i) {
    expect_equal(step(17), stock, std::to_string(i));
    hindcast::wait();
  }
  EXPECT_EQ(hindcast::stats().hits, 19U);
}

// As in a run resumed from a checkpoint: its first step was a later one of the run before.
TEST(Deterministic, WhateverWasCapturedHitOrEvicted) {
  std::vector<Gradients> stock;
  const std::vector<int64_t> batches = {5, 9, 17, 1, 33, 5};
  for (const int64_t batch : batches) stock.push_back(step(batch));
  const auto hooked = step(9, true);
  for (const size_t first : {size_t{0}, size_t{2}, size_t{4}}) {
    hindcast::reset();
    Options options = deterministic();
    options.cache_size = 1;
    options.limit = 2;
    const auto guard = hindcast::enable(options);
    for (size_t i = first; i < batches.size(); ++i) {
      expect_equal(step(batches[i]), stock[i], std::to_string(first) + "/" + std::to_string(i));
      expect_equal(step(9, true), hooked, "with a hook");
      hindcast::wait();
    }
  }
}

// Captures with kernels, from a guard without the option, are not found.
TEST(Deterministic, WhateverAnotherGuardCompiled) {
  hindcast::reset();
  const auto stock = step(17);
  {
    Options options;
    options.compiler = compilers::fused();
    const auto guard = hindcast::enable(options);
    for (int i = 0; i < 3; ++i) {
      step(17);
      hindcast::wait();
    }
  }
  const auto guard = hindcast::enable(deterministic());
  for (int i = 0; i < 3; ++i) expect_equal(step(17), stock, std::to_string(i));
}

TEST(Deterministic, IsWhatLibTorchsSwitchMeans) {
  hindcast::reset();
  Options options;
  options.compiler = compilers::fused();
  const auto guard = hindcast::enable(options);
  step(17);
  hindcast::wait();
  const bool before = at::globalContext().deterministicAlgorithms();
  at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/true);
  const auto first = step(17);
  hindcast::wait();
  expect_equal(step(17), first, "second");
  at::globalContext().setDeterministicAlgorithms(before, false);
}

TEST(Deterministic, AUsersCompilerIsTold) {
  hindcast::reset();
  std::vector<bool> strict;
  Options options = deterministic();
  options.compiler = Compiler([&strict](const std::shared_ptr<const Graph>& graph) {
    strict.push_back(graph->bitwise);
    return std::vector<SegmentFunction>(graph->segments().size());
  });
  const auto guard = hindcast::enable(options);
  step(4);
  EXPECT_EQ(strict, std::vector<bool>{true});
}

}  // namespace
}  // namespace hindcast::tests
