// What a trace contains: graphs, why they were captured, what became of them, what their runs took and held.

#include "base/log.h"
#include "codegen/kernel/backend.h"
#include "engine/diagnosis/report.h"
#include "hindcast/aot_function.h"
#include "hindcast/hindcast.h"
#include "tests/engine/diagnosis/trace/traced.h"
#include "tests/support/log_capture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <numeric>

namespace hindcast::tests {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::Ge;
using testing::HasSubstr;
using testing::Not;

Options options_of(Compiler compiler) {
  Options options;
  options.compiler = std::move(compiler);
  options.async = false;
  options.back_off = false;
  return options;
}

/// A chain of `length` products: each length is a structure of its own.
void backward(int length = 3, int64_t size = 64) {
  const auto x = at::full({size}, 0.5).set_requires_grad(true);
  auto y = x;
  for (int i = 0; i < length; ++i) y = y * x;
  y.sum().backward();
}

class TraceOfRuns : public testing::Test {
 protected:
  void SetUp() override { hindcast::reset(); }
};

TEST_F(TraceOfRuns, ACaptureIsAGraphBehindItsReasons) {
  const Traced traced;
  const auto guard = enable(options_of(compilers::eager()));
  backward();
  const auto records = traced.records();
  std::vector<std::string> kinds;
  for (const Record& record : records) kinds.push_back(record.kind());
  ASSERT_THAT(kinds, ElementsAre("start", "log", "graph"));
  EXPECT_THAT(records[1].head.at("text").get<std::string>(), HasSubstr("Cache miss due to new autograd node"));
  const Record& graph = records[2];
  EXPECT_EQ(graph.head.at("graph"), 0);
  EXPECT_EQ(graph.head.at("role"), "backward");
  EXPECT_EQ(graph.head.at("first"), "SumBackward0");
  EXPECT_THAT(graph.body.at("listing").get<std::string>(), AllOf(HasSubstr("torch.ops.aten.mul"), HasSubstr("accumulate_grad_")));
  EXPECT_THAT(graph.body.at("dot").get<std::string>(), HasSubstr("digraph backward {"));
}

TEST_F(TraceOfRuns, AGraphHasItsGuards) {
  const Traced traced;
  const auto guard = enable(options_of(compilers::eager()));
  backward(3, 64);
  const auto w = at::full({8}, 2.0).set_requires_grad(true);
  for (const int64_t rows : {4, 5}) (at::ones({rows, 8}) * w).sum().backward();
  const auto graphs = traced.of_kind("graph");
  ASSERT_EQ(graphs.size(), 3U);
  EXPECT_TRUE(graphs[1].body.at("guards").empty());
  EXPECT_EQ(graphs[2].head.at("symbols"), 1);
  EXPECT_THAT(graphs[2].body.at("guards").get<std::vector<std::string>>(), Contains(HasSubstr("s0")));
  EXPECT_THAT(traced.sentences("recompiles"), Contains(HasSubstr("as dynamic")));
}

TEST_F(TraceOfRuns, RunsAreStepsWithTimesAndBytes) {
  const Traced traced;
  const auto guard = enable(options_of(compilers::eager()));
  for (int i = 0; i < 6; ++i) backward();
  const auto plans = traced.of_kind("plan");
  ASSERT_EQ(plans.size(), 1U);
  EXPECT_EQ(plans[0].head.at("as_captured"), true);
  const size_t steps = plans[0].head.at("steps");
  const auto names = plans[0].body.at("names").get<std::vector<std::string>>();
  EXPECT_EQ(names.size(), steps);
  EXPECT_THAT(names, Contains("aten::mul"));
  EXPECT_THAT(names, Contains("AccumulateGrad"));

  const auto times = traced.of_kind("times");
  std::vector<int> runs;
  for (const Record& record : times) runs.push_back(record.head.at("runs"));
  EXPECT_THAT(runs, ElementsAre(1, 2, 4)) << "5 runs in all";
  const auto us = times.back().body.at("us").get<std::vector<double>>(), bytes = times.back().body.at("bytes").get<std::vector<double>>();
  ASSERT_EQ(us.size(), steps);
  ASSERT_EQ(bytes.size(), steps);
  for (size_t i = 0; i < steps; ++i) {
    if (names[i] == "aten::mul") {
      EXPECT_EQ(bytes[i], 3 * 64 * 4.0) << "two read and one written";
    } else if (names[i] == "aten::expand") {
      EXPECT_EQ(bytes[i], 0) << "a view moves nothing";
    }
  }
  EXPECT_NEAR(std::accumulate(us.begin(), us.end(), 0.0), times.back().head.at("us").get<double>(), 1e-6);
}

TEST_F(TraceOfRuns, MemoryIsWhatTheRunHolds) {
  const Traced traced;
  const auto guard = enable(options_of(compilers::eager()));
  constexpr int64_t kSize = 1 << 16;
  constexpr double kBytes = kSize * sizeof(float);
  for (int i = 0; i < 2; ++i) backward(3, kSize);
  const auto times = traced.of_kind("times");
  ASSERT_EQ(times.size(), 1U);
  const auto behind = times[0].body.at("held_behind").get<std::vector<double>>();
  const auto held = times[0].body.at("held").get<std::vector<double>>();
  ASSERT_EQ(held.size(), behind.size());
  EXPECT_EQ(behind.front(), -1);
  // Before the first step: x, and the two products that are saved, each once; and the gradient of the sum, a scalar.
  EXPECT_EQ(held.front(), 3 * kBytes + 4);
  EXPECT_GT(*std::max_element(held.begin(), held.end()), held.front());
  EXPECT_LT(held.back(), kBytes) << "all is given back at the end";
  EXPECT_EQ(times[0].head.at("peak"), *std::max_element(held.begin(), held.end()));
}

TEST_F(TraceOfRuns, OfAThousandRunsSomeTwentyAreRecords) {
  const Traced traced;
  const auto guard = enable(options_of(compilers::eager()));
  for (int i = 0; i < 1001; ++i) backward();
  const size_t count = traced.of_kind("times").size();
  EXPECT_GE(count, 10U);
  EXPECT_LE(count, 25U);
  EXPECT_GE(traced.of_kind("times").back().head.at("runs").get<int>(), 1000 * 2 / 3);
}

TEST_F(TraceOfRuns, CallsOfTheStockEngineAreSentences) {
  const Traced traced;
  const auto guard = enable(options_of(compilers::eager()));
  const auto x = at::full({4}, 0.5).set_requires_grad(true), y = x * x;
  y.register_hook([](const at::Tensor& grad) { return grad * 2; });
  torch::autograd::grad({y.sum()}, {x}, {}, /*retain_graph=*/true, /*create_graph=*/true);
  EXPECT_THAT(traced.sentences("fallbacks"), ElementsAre(HasSubstr("CreateGraph: create_graph was asked for")));
}

TEST_F(TraceOfRuns, AnOpaqueNodeHasAReason) {
  const Traced traced;
  const auto guard = enable(options_of(compilers::eager()));
  const auto x = at::full({4}, 0.5).set_requires_grad(true);
  x.prod().backward();
  EXPECT_THAT(traced.sentences("fallbacks"), Contains(HasSubstr("is called as itself")));
}

TEST_F(TraceOfRuns, TheOutputIsToldNoMoreThanBefore) {
  LogCapture logs("");
  const Traced traced;
  const auto guard = enable(options_of(compilers::eager()));
  for (int i = 0; i < 3; ++i) backward();
  EXPECT_EQ(logs.text(), "");
  EXPECT_THAT(hindcast::report(), Not(HasSubstr("costliest"))) << "those are of the log perf";
}

TEST_F(TraceOfRuns, ResetIsARecord) {
  const Traced traced;
  hindcast::reset();
  EXPECT_EQ(traced.of_kind("reset").size(), 1U);
}

TEST_F(TraceOfRuns, AFunctionHasItsProgramsAndTheirRuns) {
  const Traced traced;
  AotOptions options;
  options.fw_compiler = options.bw_compiler = compilers::eager();
  const auto function = aot_function([](const at::Tensor& x) { return (x.sin() * x).sum(); }, options);
  for (int i = 0; i < 3; ++i) {
    const auto x = at::full({16}, 0.5).set_requires_grad(true);
    function(x).backward();
  }
  const auto graphs = traced.of_kind("graph");
  std::vector<std::string> roles;
  for (const Record& graph : graphs) roles.push_back(graph.head.at("role"));
  ASSERT_THAT(roles, ElementsAre("forward of a function", "backward of a function"));
  EXPECT_THAT(graphs[0].body.at("listing").get<std::string>(), HasSubstr("aten.sin"));
  const auto joints = traced.of_kind("joint");
  ASSERT_EQ(joints.size(), 1U);
  EXPECT_EQ(joints[0].head.at("forward"), graphs[0].head.at("graph"));
  EXPECT_EQ(joints[0].head.at("backward"), graphs[1].head.at("graph"));
  EXPECT_EQ(traced.of_kind("plan").size(), 2U);
  EXPECT_THAT(traced.of_kind("times").size(), Ge(2U));
}

#ifdef HINDCAST_HAS_CLANG
TEST_F(TraceOfRuns, KernelsHaveTheirOpsTheirReasonAndTheirText) {
  const Traced traced;
  const auto guard = enable(options_of(compilers::fused()));
  for (int i = 0; i < 3; ++i) {  // a kernel that no other test of this process compiles
    const auto x = at::full({1 << 14}, 0.5).set_requires_grad(true);
    (x.atan().exp().tanh() * x).sum().backward();
  }
  const auto groups = traced.of_kind("groups");
  ASSERT_EQ(groups.size(), 1U);
  const auto& group = groups[0].body.at("groups").at(0);
  EXPECT_GE(group.at("ops").size(), 2U);
  std::vector<std::string> ops;
  for (const auto& op : group.at("ops")) ops.push_back(op.at("op"));
  EXPECT_THAT(ops, AllOf(Contains("aten::mul.Tensor"), Contains("aten::tanh_backward")));
  EXPECT_FALSE(group.at("stopped").get<std::string>().empty());
  EXPECT_THAT(group.at("sentence").get<std::string>(), HasSubstr("it stopped growing at " + group.at("stopped").get<std::string>()));
  // Results of ops have the same names as in the listing.
  const std::string listing = groups[0].body.at("listing");
  for (const auto& op : group.at("ops")) EXPECT_THAT(listing, HasSubstr(op.at("makes").get<std::string>() + ": \""));

  const auto kernels = traced.of_kind("kernel");
  const auto named =
      std::find_if(kernels.begin(), kernels.end(), [&](const Record& kernel) { return kernel.head.at("kernel") == group.at("kernel"); });
  ASSERT_NE(named, kernels.end());
  EXPECT_THAT(named->body.at("source").get<std::string>(), HasSubstr("tanh_backward"));
  EXPECT_THAT(named->head.at("text").get<std::string>(), testing::AnyOf(HasSubstr("compiled in"), HasSubstr("from the store")));
  const auto plans = traced.of_kind("plan");
  EXPECT_THAT(plans.back().body.at("names").get<std::vector<std::string>>(), Contains(HasSubstr("kernel of")));
  EXPECT_THAT(plans.back().body.at("instrs").get<std::vector<uint32_t>>(), Contains(group.at("last").get<uint32_t>()));
}

TEST_F(TraceOfRuns, TheFusionLogSaysWhatTheRecordSays) {
  LogCapture logs("fusion");
  const Traced traced;
  const auto guard = enable(options_of(compilers::fused()));
  backward(6, 1 << 14);
  const std::string sentence = traced.of_kind("groups").at(0).body.at("groups").at(0).at("sentence");
  EXPECT_EQ(logs.count(sentence), 1U);
  EXPECT_TRUE(traced.sentences("fusion").empty()) << "the record has them";
}
#endif

}  // namespace
}  // namespace hindcast::tests
