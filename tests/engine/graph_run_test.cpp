// What a graph offers to its holder: Graph::run() of one and of many segments, and Graph::verify().

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <functional>
#include <stdexcept>

#include "base/check.h"
#include "hindcast/hindcast.h"
#include "tests/support/kept_graphs.h"

namespace hindcast::tests {
namespace {

using testing::HasSubstr;

template <class Error>
std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was thrown";
}

std::shared_ptr<const Graph> last_graph_of(const std::function<void()>& backward) {
  hindcast::reset();
  KeptGraphs kept;
  const auto guard = hindcast::enable(kept.compiler());
  backward();
  return kept.graphs.back();
}

// x.sin() with the gradient given; of the sizes 3 and 5, so that the size is dynamic.
std::shared_ptr<const Graph> dynamic_graph_of_sin() {
  return last_graph_of([] {
    for (const int64_t n : {3, 5}) at::ones({n}).set_requires_grad(true).sin().backward(at::ones({n}));
  });
}

std::shared_ptr<const Graph> graph_of_two_segments() {
  return last_graph_of([] {
    const auto y = at::ones({3}).set_requires_grad(true).sin();
    y.register_hook([](const at::Tensor&) {});
    y.cos().sum().backward();
  });
}

/// The inputs of the only segment of x.sin(): the gradient and x, in the segment's order.
std::vector<at::Tensor> inputs_of_sin(const Graph& graph, const at::Tensor& gradient, const at::Tensor& x) {
  const auto segments = graph.segments();
  std::vector<at::Tensor> inputs;
  for (const auto value : segments.at(0).inputs) {
    inputs.push_back(value == graph.inputs.back() ? gradient : x);
  }
  return inputs;
}

TEST(GraphRun, TakesTheSizesOfItsBindings) {
  const auto graph = dynamic_graph_of_sin();
  ASSERT_EQ(graph->symbols->int_symbols(), 1U) << graph->print();
  const auto x = at::linspace(0, 1, 7);
  const auto outputs = graph->run(graph->segments().at(0), inputs_of_sin(*graph, at::ones({7}), x), Bindings{{7}, {}});
  ASSERT_EQ(outputs.size(), 1U);
  EXPECT_TRUE(outputs[0].equal(x.cos()));
}

TEST(GraphRun, RecordsNothingForAutograd) {
  const auto graph = dynamic_graph_of_sin();
  const auto x = at::linspace(0, 1, 5).set_requires_grad(true);
  const auto outputs = graph->run(inputs_of_sin(*graph, at::ones({5}), x));
  EXPECT_FALSE(outputs.at(0).requires_grad());
}

// The formula of select() writes into its own tensor; the gradient of a write to a view is copied first.
TEST(GraphRun, ChangesNoneOfItsInputs) {
  const auto graph = last_graph_of([] {
    const auto x = at::ones({3, 4}).set_requires_grad(true);
    (x.select(0, 1) * x.sin()).cumsum(0).backward(at::ones({3, 4}));
  });
  const auto segments = graph->segments();
  std::vector<at::Tensor> inputs, copies;
  for (const auto value : segments.at(0).inputs) {
    std::vector<int64_t> sizes;
    for (const auto size : graph->values[value.index].sizes) sizes.push_back(graph->symbols->expr(size).payload.i);
    inputs.push_back(at::randn(sizes));
    copies.push_back(inputs.back().clone());
  }
  graph->run(inputs);
  for (size_t i = 0; i < inputs.size(); ++i) EXPECT_TRUE(inputs[i].equal(copies[i])) << i;
  EXPECT_GT(inputs.size(), 2U);
}

TEST(GraphRun, CountsTheInputs) {
  const auto graph = dynamic_graph_of_sin();
  EXPECT_EQ(error_of<std::invalid_argument>([&] { graph->run({at::ones({5})}); }),
            "hindcast::Graph::run: 1 tensors given, the segment reads 2");
}

TEST(GraphRun, NeedsAValueForEverySymbol) {
  const auto graph = dynamic_graph_of_sin();
  const auto inputs = inputs_of_sin(*graph, at::ones({5}), at::ones({5}));
  EXPECT_NE(error_of<std::exception>([&] { graph->run(graph->segments().at(0), inputs, Bindings{}); }), "nothing was thrown");
}

TEST(GraphRun, OfTwoSegmentsAsksForOneAtATime) {
  const auto graph = graph_of_two_segments();
  ASSERT_EQ(graph->segments().size(), 2U);
  EXPECT_EQ(error_of<std::invalid_argument>([&] { graph->run({}); }),
            "hindcast::Graph::run: the graph has 2 segments, expected 1; run them one by one");
}

class GraphVerify : public testing::Test {
 protected:
  std::string error() const {
    return error_of<InternalError>([&] { graph_.verify(); });
  }
  capture::Instr& op(size_t n) {
    for (size_t i = 0; i < graph_.instrs.size(); ++i) {
      if (graph_.instrs[i].op && n-- == 0) return graph_.instrs.edit(i);
    }
    throw std::logic_error("not so many ops");
  }

  Graph graph_ = *dynamic_graph_of_sin();  // cos, then mul
};

TEST_F(GraphVerify, AcceptsWhatWasCaptured) {
  EXPECT_NO_THROW(graph_.verify());
  EXPECT_NO_THROW(graph_of_two_segments()->verify());
}

TEST_F(GraphVerify, FindsAValueThatIsReadBeforeItIsMade) {
  std::swap(op(0), op(1));
  EXPECT_THAT(error(), HasSubstr("before it is made"));
}

TEST_F(GraphVerify, FindsAValueThatIsMadeTwice) {
  op(1).outputs = op(0).outputs;
  EXPECT_THAT(error(), HasSubstr("is made twice"));
}

TEST_F(GraphVerify, FindsAValueThatIsNotOfTheGraph) {
  op(1).outputs = {capture::ValueId{static_cast<uint32_t>(graph_.values.size())}};
  EXPECT_THAT(error(), HasSubstr("value " + std::to_string(graph_.values.size()) + " of "));
}

TEST_F(GraphVerify, FindsAMissingArgument) {
  op(1).args.pop_back();
  EXPECT_THAT(error(), HasSubstr("1 arguments, its schema has 2"));
}

TEST_F(GraphVerify, FindsAMissingOp) {
  op(1).op.reset();
  EXPECT_THAT(error(), HasSubstr("has no op"));
}

TEST_F(GraphVerify, FindsANodeThatIsNotOfTheGraph) {
  op(1).origin = 99;
  EXPECT_THAT(error(), HasSubstr("comes from 99 of 2 origins"));
}

}  // namespace
}  // namespace hindcast::tests
