// Options::verify: each new graph is replayed on copies of its capture's inputs. A graph that differs by a bit is never used.
//
// All modules of torch::nn and all rows of the op table run under it in tests/whole/modules and tests/whole/ops.

#include <ATen/ScalarOps.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/autograd.h>
#include <torch/library.h>
#include <torch/types.h>

#include <cmath>

#include "capture/backward/trace.h"
#include "hindcast/hindcast.h"
#include "tests/codegen/store/temporary_folder.h"
#include "tests/support/kept_graphs.h"
#include "tests/support/log_capture.h"
#include "tests/support/same_grads.h"

namespace hindcast::tests::verify_test {
namespace {

using testing::HasSubstr;

Options verified() {
  Options options;
  options.verify = true;
  return options;
}

struct Doubled : torch::autograd::Function<Doubled> {
  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& x) { return x * 2; }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*, torch::autograd::variable_list grads) {
    return {grads[0] * 2};
  }
};

// Sizes that become dynamic, a hook, an opaque node, a write to a view, a leaf that is used twice.
std::vector<at::Tensor> mixed_program(uint64_t seed) {
  const auto w = at::randn({4, 4}).set_requires_grad(true);
  auto x = at::randn({static_cast<int64_t>(seed) + 2, 4}).mm(w).tanh();
  x.register_hook([](const at::Tensor& grad) { return grad * 3; });
  auto y = Doubled::apply(x).clone();
  y.select(0, 0).mul_(2);
  (y.softmax(-1).mm(w).cumsum(0) + x.mean(0)).sum().backward();
  return {w.grad()};
}

TEST(Verify, AcceptsWhatIsRight) {
  hindcast::reset();
  EXPECT_TRUE(expect_same_grads(mixed_program, {1, 1, 2, 3, 4}, verified()));
  EXPECT_EQ(hindcast::stats().refused_graphs, 0U);
  EXPECT_EQ(hindcast::stats().unique_graphs, 2U);
  EXPECT_EQ(hindcast::stats().hits, 3U);
}

// As Python saves the number of `loss * 0.5`: even next to a tensor without dims it does not promote to float64.
TEST(Verify, AcceptsNumbersOfPythons) {
  hindcast::reset();
  const auto program = [](uint64_t seed) {
    at::manual_seed(seed);
    const auto x = at::randn({4, 6}).set_requires_grad(true);
    ((x.sum() * at::native::wrapped_scalar_tensor(0.5)).sin() * x).sum().backward();
    return std::vector<at::Tensor>{x.grad()};
  };
  EXPECT_TRUE(expect_same_grads(program, {1, 2, 3}, verified()));
  EXPECT_EQ(hindcast::stats().refused_graphs, 0U);
  EXPECT_EQ(hindcast::stats().hits, 2U);
}

// Hooks that write in place: to the incoming gradient, which other nodes read afterwards, and to an intermediate one.
TEST(Verify, AcceptsHooksThatWriteInPlace) {
  const auto of_the_incoming_gradient = [](uint64_t seed) {
    at::manual_seed(seed);
    const auto x = at::randn({4, 4}).set_requires_grad(true), z = at::randn({4, 4}).set_requires_grad(true);
    const at::Tensor other = z.cos(), y = x.sin(), root = y + other;  // y's node, the later one, is called first
    y.register_hook([](const at::Tensor& grad) { return at::Tensor(grad).mul_(2), at::Tensor(); });
    root.backward(at::randn({4, 4}));
    return std::vector<at::Tensor>{x.grad(), z.grad()};
  };
  const auto on_the_way = [](uint64_t seed) {
    at::manual_seed(seed);
    const auto x = at::randn({4, 4}).set_requires_grad(true);
    const at::Tensor y = x.sin();
    y.register_hook([](const at::Tensor& grad) { return at::Tensor(grad).mul_(2), at::Tensor(); });
    (y.tanh() + x).exp().sum().backward();
    return std::vector<at::Tensor>{x.grad()};
  };
  // The leaf's existing gradient is the incoming one.
  const auto grad_of_leaf = [](uint64_t seed) {
    at::manual_seed(seed);
    const auto x = at::randn({4, 4}).set_requires_grad(true);
    const auto z = at::randn({4, 4}).set_requires_grad(true);
    x.mutable_grad() = at::randn({4, 4});
    const at::Tensor other = z.cos(), y = x.sin();
    (y + other).backward(x.grad());
    return std::vector<at::Tensor>{x.grad(), z.grad()};
  };
  struct Case {
    std::vector<at::Tensor> (*program)(uint64_t seed);
    size_t warnings;
  };
  for (const Case& c : {Case{of_the_incoming_gradient, 1}, {on_the_way, 0}, {grad_of_leaf, 1}}) {
    hindcast::reset();
    LogCapture logs("");
    EXPECT_TRUE(expect_same_grads(c.program, {1, 2, 3}, verified()));
    EXPECT_EQ(hindcast::stats().refused_graphs, 0U) << logs.text();
    EXPECT_EQ(logs.count("cannot be compared with its backward"), c.warnings) << logs.text();
    EXPECT_EQ(hindcast::stats().hits, 2U);
  }
}

TEST(Verify, LeavesTheLeavesAndTheRandomNumbersAlone) {
  hindcast::reset();
  expect_same_grads(
      [](uint64_t) {
        const auto w = at::randn({3}).set_requires_grad(true);
        w.mutable_grad() = at::ones({3});
        w.sin().sum().backward();
        return std::vector{w.grad(), w.detach(), at::rand({2})};
      },
      {1, 2}, verified());
}

// An operator that is not pure: every call returns something else.
int calls = 0;
at::Tensor plus_number_of_calls(const at::Tensor& x) { return x + ++calls; }

TORCH_LIBRARY(hindcast_verify_test, library) { library.def("plus_number_of_calls(Tensor x) -> Tensor"); }
TORCH_LIBRARY_IMPL(hindcast_verify_test, CPU, library) { library.impl("plus_number_of_calls", plus_number_of_calls); }

at::Tensor call_the_operator(const at::Tensor& x) {
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("hindcast_verify_test::plus_number_of_calls", "")
                             .typed<at::Tensor(const at::Tensor&)>();
  return op.call(x);
}

std::vector<at::Tensor> program_with_the_operator(uint64_t) {
  calls = 0;
  const auto w = at::ones({4}).set_requires_grad(true);
  w.register_hook(hindcast::traceable([](at::Tensor grad) { return call_the_operator(grad); }));
  w.sin().sum().backward();
  return {w.grad()};
}

TEST(Verify, RefusesAGraphThatGivesOtherBitsWhenItIsReplayed) {
  hindcast::reset();
  LogCapture logs("");
  const codegen::store::TemporaryFolder folder;
  setenv("HINDCAST_REPRODUCER_DIR", folder.path().c_str(), 1);
  EXPECT_TRUE(expect_same_grads(program_with_the_operator, {1, 2, 3}, verified())) << "the capture itself is right";
  const Stats stats = hindcast::stats();
  unsetenv("HINDCAST_REPRODUCER_DIR");
  EXPECT_EQ(stats.refused_graphs, 3U);
  EXPECT_EQ(logs.count("what shows it is in " + folder.path().string()), 3U) << logs.text();
  EXPECT_EQ(stats.unique_graphs, 0U);
  EXPECT_EQ(stats.hits, 0U) << "a refused graph served";
  EXPECT_EQ(logs.count("error: a captured graph is refused, please report it: value "), 3U) << logs.text();
  EXPECT_THAT(logs.text(), HasSubstr("===== Compiled autograd graph ====="));
  EXPECT_THAT(hindcast::report(), HasSubstr("refused graphs"));
}

// Writes that the replay does reproduce: to a leaf's gradient and to a saved leaf by a hook after the accumulation, and the engine's own
// sum in place into a node's result.
TEST(Verify, RefusesItThoughOthersWriteInPlace) {
  const auto program = [](uint64_t) {
    calls = 0;
    const auto w = at::ones({4}).set_requires_grad(true), v = at::ones({4}).set_requires_grad(true);
    w.register_hook(hindcast::traceable([](at::Tensor grad) { return call_the_operator(grad); }));
    hindcast::on_grad_ready(v, [](const at::Tensor& leaf) {
      const at::NoGradGuard guard;
      leaf.mutable_grad().mul_(2);
      at::Tensor(leaf).add_(1);
    });
    const at::Tensor x = w.clone(), m = x.sin(), y = Doubled::apply(x);
    ((m + y) * v).sum().backward();
    return std::vector<at::Tensor>{w.grad(), v.grad()};
  };
  hindcast::reset();
  EXPECT_TRUE(expect_same_grads(program, {1, 2, 3}, verified()));
  EXPECT_EQ(hindcast::stats().refused_graphs, 3U);
  EXPECT_EQ(hindcast::stats().hits, 0U);
}

// verify covers the record of the backward. It does not run a user's compiler on the copies: a wrong compiler gives wrong gradients, with
// and without verify.
TEST(Verify, LooksAtTheGraphNotAtWhatACompilerMakesOfIt) {
  hindcast::reset();
  Options options = verified();
  options.compiler = Compiler([](const std::shared_ptr<const Graph>& graph) {
    std::vector<SegmentFunction> functions;
    for (const Segment& segment : graph->segments()) {
      functions.push_back([graph, segment](std::vector<at::Tensor> inputs, const Bindings& bindings) {
        auto outputs = graph->run(segment, std::move(inputs), bindings);
        for (at::Tensor& output : outputs) output = output + 1;
        return outputs;
      });
    }
    return functions;
  });
  const auto guard = hindcast::enable(options);
  const auto backward = [] {
    const auto x = at::zeros({3}).set_requires_grad(true);
    x.sin().sum().backward();
    return x.grad();
  };
  EXPECT_TRUE(backward().equal(at::ones({3}))) << "the capture is the stock engine's gradient";
  EXPECT_TRUE(backward().equal(at::full({3}, 2.))) << "the hit is the compiler's";
  EXPECT_EQ(hindcast::stats().refused_graphs, 0U);
}

/// The graph of x.sin(), its capture's inputs, and their results.
class ReplayCheckOfSin : public testing::Test {
 protected:
  void SetUp() override {
    hindcast::reset();
    KeptGraphs kept;
    const auto guard = hindcast::enable(kept.compiler());
    const auto x = at::linspace(-1, 1, 5).set_requires_grad(true);
    x.sin().backward(at::ones({5}));
    ASSERT_EQ(kept.graphs.size(), 1U);
    graph_ = kept.graphs[0]->copy();
    ASSERT_EQ(graph_->inputs.size(), 2U) << "what sin saved, and the gradient";
    check_.inputs = {{graph_->inputs[1], at::ones({5})}, {graph_->inputs[0], x.detach()}};
    check_.results = {{last_op().outputs.at(0), x.grad()}};
  }
  capture::Instr& last_op() {
    for (size_t i = graph_->instrs.size(); i-- > 0;) {
      if (graph_->instrs[i].op) return graph_->instrs.edit(i);
    }
    throw std::logic_error("no op");
  }
  at::Tensor& result() { return check_.results[0].second; }
  std::string difference() const { return check_.find_difference(*graph_).value_or("none"); }

  std::shared_ptr<Graph> graph_;
  capture::ReplayCheck check_;
};

TEST_F(ReplayCheckOfSin, FindsNothingInTheTrueGraph) { EXPECT_EQ(difference(), "none"); }

TEST_F(ReplayCheckOfSin, FindsAnotherOp) {
  auto& cosine = graph_->instrs.edit(graph_->instrs[0].op ? 0 : 1);
  ASSERT_EQ(cosine.op->operator_name().name, "aten::cos");
  cosine.op = c10::Dispatcher::singleton().findSchemaOrThrow("aten::exp", "");
  EXPECT_THAT(difference(), HasSubstr("is not what the capture computed"));
}

TEST_F(ReplayCheckOfSin, FindsTheLastBit) {
  result() = result().clone();
  result().mutable_data_ptr<float>()[3] = std::nextafter(result().data_ptr<float>()[3], 2.F);
  EXPECT_THAT(difference(), HasSubstr("is not what the capture computed"));
}

TEST_F(ReplayCheckOfSin, FindsAnotherDtypeAndOtherSizes) {
  const auto right = result();
  result() = right.to(at::kDouble);
  EXPECT_THAT(difference(), HasSubstr("is not what the capture computed"));
  result() = right.reshape({5, 1});
  EXPECT_THAT(difference(), HasSubstr("is not what the capture computed"));
}

TEST_F(ReplayCheckOfSin, FindsAMissingValue) {
  graph_->instrs.clear();
  EXPECT_THAT(difference(), HasSubstr("is not made by the replay"));
}

TEST_F(ReplayCheckOfSin, TellsNegativeZeroFromZero) {
  check_.inputs[0].second = at::zeros({5});
  result() = at::zeros({5});
  EXPECT_EQ(difference(), "none");
  result() = -at::zeros({5});
  EXPECT_THAT(difference(), HasSubstr("is not what the capture computed"));
}

}  // namespace
}  // namespace hindcast::tests::verify_test
