// What a user's graph compiler may get wrong, and what runs around its segments: hooks, accumulation, later captures.
// tests/examples/my_compiler_test.cpp checks that it is called once per graph and its result on every hit.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <functional>
#include <sstream>
#include <stdexcept>

#include "hindcast/graph.h"
#include "hindcast/hindcast.h"
#include "tests/support/log_capture.h"
#include "tests/support/programs.h"
#include "tests/support/same_grads.h"

namespace hindcast::tests {
namespace {

using GraphPointer = std::shared_ptr<const Graph>;
using Functions = std::vector<SegmentFunction>;
using testing::HasSubstr;

/// Replays every segment through ATen, then passes its results to `change`.
Compiler replaying(std::function<void(std::vector<at::Tensor>&)> change = [](auto&) {}) {
  return Compiler([change = std::move(change)](const GraphPointer& graph) {
    Functions functions;
    for (const Segment& segment : graph->segments()) {
      functions.push_back([graph, segment, change](std::vector<at::Tensor> inputs, const Bindings& bindings) {
        auto outputs = graph->run(segment, std::move(inputs), bindings);
        change(outputs);
        return outputs;
      });
    }
    return functions;
  });
}

Options with(Compiler compiler) {
  Options options;
  options.compiler = std::move(compiler);
  return options;
}

size_t segments_compiled(const std::function<void()>& backward) {
  size_t segments = 0;
  const auto guard = hindcast::enable(Compiler([&](const GraphPointer& graph) {
    segments += graph->segments().size();
    return Functions(graph->segments().size());
  }));
  backward();
  return segments;
}

void backward_of_sin(const at::Tensor& x) {
  x.mutable_grad() = at::Tensor();
  x.sin().sum().backward();
}

class WrongResults : public testing::Test {
 protected:
  void SetUp() override { hindcast::reset(); }

  /// The error of the second backward, the first hit, with a compiler whose results `change` spoils.
  std::string error_of(std::function<void(std::vector<at::Tensor>&)> change) {
    const auto guard = hindcast::enable(replaying(std::move(change)));
    backward_of_sin(x_);
    try {
      backward_of_sin(x_);
    } catch (const std::invalid_argument& error) {
      return error.what();
    }
    return "nothing was thrown";
  }

  at::Tensor x_ = at::linspace(0, 1, 4).set_requires_grad(true);
};

TEST_F(WrongResults, TooFewAreAnErrorThatCountsThem) {
  EXPECT_THAT(error_of([](auto& outputs) { outputs.clear(); }), HasSubstr("a compiled segment returned 0 tensors, expected 1"));
  EXPECT_FALSE(x_.grad().defined());
}

TEST_F(WrongResults, TooManyAreAnErrorThatCountsThem) {
  EXPECT_THAT(error_of([](auto& outputs) { outputs.push_back(outputs[0]); }),
              HasSubstr("a compiled segment returned 2 tensors, expected 1"));
  EXPECT_FALSE(x_.grad().defined());
}

TEST_F(WrongResults, TheNextBackwardFindsEverythingInOrder) {
  error_of([](auto& outputs) { outputs.clear(); });
  const auto guard = hindcast::enable();
  for (int step = 0; step < 2; ++step) {
    backward_of_sin(x_);
    EXPECT_TRUE(x_.grad().equal(x_.detach().cos()));
  }
}

struct OutOfRegisters : std::runtime_error {
  using std::runtime_error::runtime_error;
};

TEST(ACompiledSegmentThatThrows, PassesItsOwnExceptionThrough) {
  hindcast::reset();
  const auto guard = hindcast::enable(replaying([](auto&) { throw OutOfRegisters("no registers left"); }));
  const auto x = at::linspace(0, 1, 4).set_requires_grad(true);
  backward_of_sin(x);
  EXPECT_THROW(backward_of_sin(x), OutOfRegisters);
  EXPECT_FALSE(x.grad().defined());
}

TEST(ACompiledSegmentThatThrows, DoesSoBehindHooksToo) {
  hindcast::reset();
  const auto guard = hindcast::enable(replaying([](auto&) { throw OutOfRegisters("no registers left"); }));
  const auto backward = [] {
    const auto x = at::linspace(0, 1, 4).set_requires_grad(true);
    const auto y = x.sin();
    y.register_hook([](const at::Tensor& grad) { return grad * 2; });
    y.exp().sum().backward();
  };
  backward();
  EXPECT_THROW(backward(), OutOfRegisters);
}

TEST(ACompilerThatThrows, LeavesEachOfItsGraphsToAtenAndSaysSo) {
  hindcast::reset();
  LogCapture logs("");
  const auto guard = hindcast::enable(Compiler([](const GraphPointer&) -> Functions { throw OutOfRegisters("no registers left"); }));
  const auto x = at::linspace(0, 1, 4).set_requires_grad(true);
  for (int step = 0; step < 3; ++step) {
    backward_of_sin(x);
    EXPECT_TRUE(x.grad().equal(x.detach().cos()));
  }
  EXPECT_EQ(hindcast::stats().hits, 2U);
  EXPECT_EQ(logs.text(),
            "[hindcast/compiled_autograd] warning: the graph compiler failed on graph 0: no registers left; "
            "it is replayed through ATen\n");
}

TEST(ACompilerThatThrows, MayThrowWhatIsNoStdException) {
  hindcast::reset();
  LogCapture logs("");
  const auto guard = hindcast::enable(Compiler([](const GraphPointer&) -> Functions { throw 7; }));
  const auto x = at::linspace(0, 1, 4).set_requires_grad(true);
  EXPECT_NO_THROW(backward_of_sin(x));
  EXPECT_EQ(logs.count("the graph compiler failed on graph 0"), 1U) << logs.text();
}

TEST(Segments, EndAtHooksAndOpaqueNodesNotAtAccumulation) {
  hindcast::reset();
  const auto two_leaves = [] {
    const auto a = at::ones({3}).set_requires_grad(true), b = at::ones({3}).set_requires_grad(true);
    return (a.sin() * b).cos().sum();
  };
  EXPECT_EQ(segments_compiled([&] { two_leaves().backward(); }), 1U);
  EXPECT_EQ(segments_compiled([&] {
              const auto x = at::ones({3}).set_requires_grad(true);
              const auto y = x.sin();
              y.register_hook([](const at::Tensor&) {});
              y.cos().sum().backward();
            }),
            2U);
}

// Programs that expect_same_grads() runs under a compiler that replays; only equal bits are required.
void expect_same_when_compiled(const SeededProgram& program) {
  hindcast::reset();
  expect_same_grads(program, {1, 1, 2, 2, 3}, with(replaying()));
  EXPECT_GT(hindcast::stats().hits, 0U) << hindcast::report();
}

TEST(CompiledSegments, WriteSeveralLeavesInTurn) {
  expect_same_when_compiled([](uint64_t seed) {
    const auto n = static_cast<int64_t>(seed) + 2;
    const auto a = at::randn({4, 4}).set_requires_grad(true), b = at::randn({4}).set_requires_grad(true);
    a.mutable_grad() = at::ones({4, 4});
    const auto x = at::randn({n, 4});
    (at::addmm(b, x, a).tanh().mm(a) + b).pow(2).sum().backward();
    return std::vector{a.grad(), b.grad()};
  });
}

TEST(CompiledSegments, StandBetweenHooksOfEveryKind) {
  expect_same_when_compiled([](uint64_t seed) {
    const auto n = static_cast<int64_t>(seed) + 2;
    const auto w = at::randn({n, 4}).set_requires_grad(true);
    std::vector<at::Tensor> seen;
    w.register_hook([&](const at::Tensor& grad) { seen.push_back(grad.clone()); });
    hindcast::on_grad_ready(w, [&](const at::Tensor& leaf) { seen.push_back(leaf.grad().clone()); });
    auto y = w.sin();
    y.retain_grad();
    y.register_hook([](const at::Tensor& grad) { return grad.mul(2); });
    (y.exp() * w).sum().backward();
    seen.push_back(y.grad());
    seen.push_back(w.grad());
    return seen;
  });
}

TEST(CompiledSegments, RunAgainWithRetainGraph) {
  expect_same_when_compiled([](uint64_t) {
    const auto w = at::randn({3, 3}).set_requires_grad(true);
    const auto loss = w.mm(w).tanh().sum();
    loss.backward({}, /*retain_graph=*/true);
    loss.backward();
    return std::vector{w.grad()};
  });
}

// After the capture, the leaf's callback registers a hook on a tensor that the backward has not reached: the rest runs from the middle of a
// segment that the compiler's function has computed as a whole.
TEST(CompiledSegments, StopWhereACallbackRegistersAHook) {
  expect_same_when_compiled([](uint64_t seed) {
    const auto x = at::randn({4}).set_requires_grad(true), a = at::randn({4}).set_requires_grad(true);
    const auto inner = x * 3;
    const auto product = inner.sin().cos() * a;
    product.register_hook([](const at::Tensor&) {});
    hindcast::on_grad_ready(a, [&](const at::Tensor&) {
      if (seed > 1) inner.register_hook([](const at::Tensor& grad) { return grad * 10; });
    });
    product.sum().backward();
    return std::vector{x.grad(), a.grad()};
  });
}

TEST(PrintCompiler, PrintsEachNewGraphOnce) {
  hindcast::reset();
  std::ostringstream printed;
  const auto guard = hindcast::enable(compilers::print(printed));
  const auto backward = [](int64_t n) { at::ones({n, 3}).set_requires_grad(true).sin().sum().backward(); };
  const auto graphs = [&] {
    size_t count = 0;
    const std::string text = printed.str();
    for (size_t at = text.find("====="); at != std::string::npos; at = text.find("=====\n", at + 6)) ++count;
    return count - 1;  // the first mark is at the start of the line
  };
  backward(2);
  EXPECT_EQ(graphs(), 1U);
  backward(2);
  EXPECT_EQ(graphs(), 1U) << "a hit prints nothing";
  backward(5);
  EXPECT_EQ(graphs(), 2U);
  backward(7);
  EXPECT_EQ(graphs(), 2U);
  EXPECT_THAT(printed.str(), HasSubstr("class CompiledAutograd0("));
  EXPECT_THAT(printed.str(), HasSubstr("class CompiledAutograd1("));
}

TEST(PrintCompiler, SharesItsGraphsWithItsCopies) {
  hindcast::reset();
  std::ostringstream printed;
  const auto x = at::ones({3}).set_requires_grad(true);
  const Compiler compiler = compilers::print(printed);
  for (int i = 0; i < 2; ++i) {
    const auto guard = hindcast::enable(compiler);
    backward_of_sin(x);
  }
  EXPECT_EQ(hindcast::stats().unique_graphs, 1U);
  const auto guard = hindcast::enable(compilers::print(printed));
  backward_of_sin(x);
  EXPECT_EQ(hindcast::stats().unique_graphs, 2U) << "another one prints for itself";
}

TEST(PrintCompiler, ChangesNoGradient) {
  std::ostringstream printed;
  hindcast::reset();
  expect_same_grads(
      [](uint64_t) {
        const auto w = at::randn({3, 4}).set_requires_grad(true);
        w.mm(w.t()).tanh().sum().backward();
        return std::vector{w.grad()};
      },
      {1, 2, 3}, with(compilers::print(printed)));
}

TEST(EagerCompiler, SharesItsGraphsWithGuardsWithoutOne) {
  hindcast::reset();
  const auto x = at::ones({3}).set_requires_grad(true);
  {
    const auto guard = hindcast::enable();
    backward_of_sin(x);
  }
  const auto guard = hindcast::enable(compilers::eager());
  backward_of_sin(x);
  EXPECT_EQ(hindcast::stats().hits, 1U);
}

}  // namespace
}  // namespace hindcast::tests
