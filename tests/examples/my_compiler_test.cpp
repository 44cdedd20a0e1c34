// The user's own graph compiler: its input, that its result runs, and what happens when it fails.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <atomic>
#include <stdexcept>

#include "hindcast/graph.h"
#include "hindcast/hindcast.h"
#include "tests/support/log_capture.h"

namespace hindcast::tests {
namespace {

using GraphPointer = std::shared_ptr<const Graph>;
using Functions = std::vector<SegmentFunction>;

/// Replays every segment through ATen and counts.
struct CountingCompiler {
  std::atomic<int>& graphs;
  std::atomic<int>& runs;

  Functions operator()(const GraphPointer& graph) const {
    ++graphs;
    Functions functions;
    for (const Segment& segment : graph->segments()) {
      functions.push_back([graph, segment, &runs = runs](std::vector<at::Tensor> inputs, const Bindings& bindings) {
        ++runs;
        return graph->run(segment, std::move(inputs), bindings);
      });
    }
    return functions;
  }
};

class MyCompiler : public testing::Test {
 protected:
  void SetUp() override { hindcast::reset(); }

  at::Tensor loss(int64_t batch) { return (at::arange(batch * 4, at::kFloat).reshape({batch, 4}).mm(w_.t()).tanh() * w_.sum()).sum(); }
  at::Tensor grad(int64_t batch) {
    w_.mutable_grad() = at::Tensor();
    loss(batch).backward();
    return w_.grad();
  }

  std::atomic<int> graphs_ = 0, runs_ = 0;
  const Compiler compiler_{CountingCompiler{graphs_, runs_}};
  at::Tensor w_ = at::linspace(-1, 1, 12).reshape({3, 4}).set_requires_grad(true);
};

TEST_F(MyCompiler, IsAskedOnceAGraphAndRunsOnEveryHit) {
  const at::Tensor stock = grad(2);
  const auto guard = hindcast::enable(compiler_);
  for (int step = 0; step < 4; ++step) EXPECT_TRUE(grad(2).equal(stock));
  EXPECT_EQ(graphs_, 1);
  EXPECT_EQ(runs_, 3) << "the first backward was the trace";
}

TEST_F(MyCompiler, GetsTheSizesOfEachBackward) {
  std::vector<at::Tensor> stock;
  for (const int64_t batch : {2, 5, 9}) stock.push_back(grad(batch));
  const auto guard = hindcast::enable(compiler_);
  for (int round = 0; round < 2; ++round) {
    EXPECT_TRUE(grad(2).equal(stock[0]));
    EXPECT_TRUE(grad(5).equal(stock[1]));
    EXPECT_TRUE(grad(9).equal(stock[2]));
  }
  EXPECT_EQ(graphs_, 2) << "the static and the dynamic one";
  EXPECT_EQ(runs_, 4);
}

TEST_F(MyCompiler, GetsOneSegmentOnEachSideOfAHook) {
  const auto backward = [&] {
    w_.mutable_grad() = at::Tensor();
    const auto hidden = w_.sin();
    hidden.register_hook([](at::Tensor grad) { return grad * 3; });
    hidden.cos().sum().backward();
    return w_.grad();
  };
  const at::Tensor stock = backward();
  const auto guard = hindcast::enable(compiler_);
  for (int step = 0; step < 3; ++step) EXPECT_TRUE(backward().equal(stock));
  EXPECT_EQ(graphs_, 1);
  EXPECT_EQ(runs_, 4) << "two hits of two segments";
}

TEST_F(MyCompiler, MayReplaceWhatItLikes) {
  const Compiler zeros(Compiler::Function([](const GraphPointer& graph) {
                         Functions functions;
                         for (const Segment& segment : graph->segments()) {
                           functions.push_back([graph, segment](std::vector<at::Tensor> inputs, const Bindings& bindings) {
                             auto outputs = graph->run(segment, std::move(inputs), bindings);
                             for (at::Tensor& output : outputs) output = at::zeros_like(output);
                             return outputs;
                           });
                         }
                         return functions;
                       }),
                       /*identity=*/0);
  const auto guard = hindcast::enable(zeros);
  grad(2);
  EXPECT_TRUE(grad(2).equal(at::zeros({3, 4}))) << "the hit did not run what the compiler returned";
}

TEST_F(MyCompiler, GraphRunNeedsNoEngine) {
  GraphPointer graph;
  const auto keep = [&](const GraphPointer& captured) {
    graph = captured;
    return Functions(captured->segments().size());
  };
  const at::Tensor x = at::randn({5}).set_requires_grad(true);
  {
    const auto guard = hindcast::enable(Compiler(keep));
    x.sin().backward(at::ones({5}));
  }
  ASSERT_NE(graph, nullptr);
  const auto segments = graph->segments();
  ASSERT_EQ(segments.size(), 1U);
  std::vector<at::Tensor> inputs;
  for (const auto value : segments[0].inputs) {
    inputs.push_back(value == graph->inputs.back() ? at::full({5}, 2.) : x.detach());
  }
  const auto outputs = graph->run(inputs);
  ASSERT_EQ(outputs.size(), 1U);
  EXPECT_TRUE(outputs[0].equal(2 * x.detach().cos()));
}

TEST_F(MyCompiler, WrongInputsOfGraphRunAreRefused) {
  const auto try_it = [](const GraphPointer& graph) {
    EXPECT_THROW(graph->run({}), std::invalid_argument);
    return Functions(graph->segments().size());
  };
  const auto guard = hindcast::enable(Compiler(try_it));
  grad(2);
}

TEST_F(MyCompiler, WhatItThrowsMeansReplayThroughAten) {
  const at::Tensor stock = grad(2);
  LogCapture logs("");
  const auto throwing = [](const GraphPointer&) -> Functions { throw std::runtime_error("no registers left"); };
  const auto guard = hindcast::enable(Compiler(throwing));
  for (int step = 0; step < 3; ++step) EXPECT_TRUE(grad(2).equal(stock));
  EXPECT_EQ(hindcast::stats().hits, 2U);
  EXPECT_EQ(logs.count("no registers left"), 1U) << logs.text();
  EXPECT_EQ(logs.count("replayed through ATen"), 1U) << logs.text();
}

TEST_F(MyCompiler, AListOfTheWrongLengthMeansReplayThroughAten) {
  const at::Tensor stock = grad(2);
  LogCapture logs("");
  const auto guard = hindcast::enable(Compiler([](const GraphPointer&) { return Functions(7); }));
  for (int step = 0; step < 2; ++step) EXPECT_TRUE(grad(2).equal(stock));
  EXPECT_THAT(logs.text(), testing::HasSubstr("the graph compiler returned 7 functions for the 1 segments of graph"));
}

TEST_F(MyCompiler, AnEmptyFunctionMeansReplayOfItsSegment) {
  const at::Tensor stock = grad(2);
  LogCapture logs("");
  const auto guard = hindcast::enable(Compiler([](const GraphPointer& graph) { return Functions(graph->segments().size()); }));
  for (int step = 0; step < 3; ++step) EXPECT_TRUE(grad(2).equal(stock));
  EXPECT_EQ(logs.text(), "");
}

}  // namespace
}  // namespace hindcast::tests
