// A program without autograd nodes, such as a function's forward: through passes, fusion, kernels and a plan, run by execute().

#include "codegen/fuse/fuse.h"
#include "codegen/kernel/backend.h"
#include "codegen/passes/pipeline.h"
#include "codegen/plan/execute.h"
#include "hindcast/graph.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <memory>

namespace hindcast::tests {
namespace {

using capture::Arg;
using capture::Graph;
using capture::ValueId;

/// z = cos(cos(x + y)) and the sum of x and y, of `n` floats each.
class Program : public testing::Test {
 protected:
  ValueId value() {
    graph_->values.push_back({.dtype = at::kFloat, .sizes = {graph_->symbols->integer(kSize)}, .strides = {1}});
    return {static_cast<uint32_t>(graph_->values.size() - 1)};
  }
  ValueId call(const char* name, const char* overload, std::vector<Arg> args) {
    capture::Instr& instr = graph_->instrs.emplace_back();
    instr.op = c10::Dispatcher::singleton().findSchemaOrThrow(name, overload);
    instr.args = std::move(args);
    instr.outputs = {value()};
    return instr.outputs[0];
  }
  static Arg of(ValueId value) { return {Arg::Kind::Value, {}, {value}, {}}; }

  void SetUp() override {
    graph_->inputs = {value(), value()};
    const ValueId sum = call("aten::add", "Tensor", {of(graph_->inputs[0]), of(graph_->inputs[1]), {Arg::Kind::Constant, 1, {}, {}}});
    call("aten::neg", "", {of(sum)});  // unused
    const ValueId once = call("aten::cos", "", {of(sum)});
    graph_->outputs = {call("aten::cos", "", {of(once)}), sum};
    graph_->verify();
  }

  /// The plan's results for the inputs, in the order of the outputs.
  std::vector<at::Tensor> run(const codegen::Plan& plan) const {
    capture::Env env;
    EXPECT_TRUE(plan.evaluator().evaluate({}, env));
    codegen::Slots slots(plan.slot_count());
    slots[0] = x_;
    slots[1] = y_;
    EXPECT_EQ(codegen::execute(plan, 0, slots, env), plan.steps().size());
    std::vector<at::Tensor> results;
    for (const ValueId output : plan.graph().outputs) results.push_back(slots[plan.slot_of(output)]);
    return results;
  }

  static constexpr int64_t kSize = 37;
  std::shared_ptr<Graph> graph_ = std::make_shared<Graph>();
  const at::Tensor x_ = at::linspace(-1, 1, kSize), y_ = at::linspace(2, 3, kSize);
};

TEST_F(Program, RunsOpByOpToATensBits) {
  const auto results = run(codegen::Plan(graph_));
  ASSERT_EQ(results.size(), 2U);
  EXPECT_TRUE(results[0].equal((x_ + y_).cos().cos()));
  EXPECT_TRUE(results[1].equal(x_ + y_));
}

TEST_F(Program, LosesWhatItDoesNotReturn) {
  const auto* backend = codegen::backend_of(*graph_);
  ASSERT_NE(backend, nullptr);
  const auto optimised = codegen::optimise(graph_, backend->cost_model()).graph;
  EXPECT_EQ(optimised->instrs.size(), 3U);
  EXPECT_EQ(optimised->outputs, graph_->outputs);
}

TEST_F(Program, IsOneKernelThatMakesAllThatItReturns) {
  const auto* backend = codegen::backend_of(*graph_);
  ASSERT_NE(backend, nullptr);
  const auto optimised = codegen::optimise(graph_, backend->cost_model()).graph;
  const codegen::Schedule schedule = codegen::fuse(*optimised, backend->cost_model());
  ASSERT_EQ(schedule.groups.size(), 1U);
  ASSERT_EQ(schedule.items.size(), 1U);
  EXPECT_EQ(schedule.groups[0].stores.size(), 2U);
  std::string why_not;
  const auto kernel = backend->kernel(schedule.groups[0].body, why_not);
  ASSERT_NE(kernel, nullptr) << why_not;
  const auto results = run({optimised, schedule, [&](uint32_t group) { return backend->call(schedule.groups[group], kernel); }});
  const at::Tensor exact = (x_.to(at::kDouble) + y_.to(at::kDouble)).cos().cos();
  EXPECT_TRUE(at::allclose(results.at(0).to(at::kDouble), exact, 1e-6, 1e-7));
  EXPECT_TRUE(results.at(1).equal(x_ + y_));
}

TEST_F(Program, ReadsAsAGraphOfItsOwn) {
  const std::string text = graph_->print();
  EXPECT_NE(text.find("===== Graph ====="), std::string::npos) << text;
  EXPECT_NE(text.find("arg0: \"f32[37][1]cpu\" = inputs[0]"), std::string::npos) << text;
  EXPECT_NE(text.find("return [cos_1, add]"), std::string::npos) << text;
}

}  // namespace
}  // namespace hindcast::tests
