// Sums of gradients, the first sparse and the second dense: ATen's add accepts only the other order.

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <vector>

#include "hindcast/graph.h"
#include "hindcast/hindcast.h"
#include "tests/support/same_grads.h"

namespace hindcast::tests {
namespace {

/// The gradient of `weight` from the embedding, the last op, comes first.
at::Tensor loss_of(const at::Tensor& weight, uint64_t seed) {
  const auto dense = weight.sin().sum();
  return dense + at::embedding(weight, at::tensor({1, 3, 3, static_cast<int>(seed)}, at::kLong), -1, false, /*sparse=*/true).pow(2).sum();
}

std::vector<at::Tensor> sparse_then_dense(uint64_t seed) {
  const auto weight = at::randn({6, 2}).set_requires_grad(true);
  loss_of(weight, seed).backward();
  return {weight.grad()};
}

std::vector<at::Tensor> sparse_then_two_dense(uint64_t seed) {
  const auto weight = at::randn({6, 2}).set_requires_grad(true);
  (weight.cos().sum() + loss_of(weight, seed)).backward();
  return {weight.grad()};
}

/// Replays each segment as a user's compiler does.
std::vector<SegmentFunction> replay_of(const std::shared_ptr<const Graph>& graph) {
  std::vector<SegmentFunction> functions;
  for (const Segment& segment : graph->segments()) {
    functions.push_back([graph, segment](std::vector<at::Tensor> inputs, const Bindings& bindings) {
      return graph->run(segment, std::move(inputs), bindings);
    });
  }
  return functions;
}

TEST(SparseSums, AreVerified) {
  for (const auto& program : {sparse_then_dense, sparse_then_two_dense}) {
    for (const auto& compiler : {compilers::eager(), compilers::fused_through_aten()}) {
      hindcast::reset();
      Options options;
      options.verify = true;
      options.async = false;
      options.compiler = compiler;
      expect_same_grads(program, {1, 2, 4}, options);
      EXPECT_EQ(hindcast::stats().refused_graphs, 0U);
      EXPECT_EQ(hindcast::stats().hits, 2U);
    }
  }
}

TEST(SparseSums, InACompilerOfTheUsers) {
  for (const auto& program : {sparse_then_dense, sparse_then_two_dense}) {
    hindcast::reset();
    Options options;
    options.compiler = Compiler(replay_of);
    expect_same_grads(program, {1, 2, 4}, options);
    EXPECT_EQ(hindcast::stats().hits, 2U);
  }
}

// Also outside of a backward, with grad mode on, as LibTorch's own sum supports.
TEST(SparseSums, InARunOfTheGraph) {
  hindcast::reset();
  std::function<std::vector<at::Tensor>()> again;
  Options options;
  options.compiler = Compiler([&](const std::shared_ptr<const Graph>& graph) {
    std::vector<SegmentFunction> functions;
    for (const Segment& segment : graph->segments()) {
      functions.push_back([&again, graph, segment](const std::vector<at::Tensor>& inputs, const Bindings& bindings) {
        again = [=] { return graph->run(segment, inputs, bindings); };  // finally the segment with the sum
        return again();
      });
    }
    return functions;
  });
  const auto weight = at::randn({6, 2}).set_requires_grad(true);
  {
    const auto guard = hindcast::enable(options);
    for (int i = 0; i < 2; ++i) {
      weight.mutable_grad().reset();
      loss_of(weight, 1).backward(/*gradient=*/{}, /*retain_graph=*/true);
    }
  }
  ASSERT_TRUE(again);
  ASSERT_TRUE(at::GradMode::is_enabled());
  const auto results = again();
  ASSERT_EQ(results.size(), 1U);
  EXPECT_TRUE(bit_equal(results[0], weight.grad()));
}

}  // namespace
}  // namespace hindcast::tests
