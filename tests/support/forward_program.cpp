#include "tests/support/forward_program.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>

#include "capture/recorder/recorder.h"
#include "codegen/fuse/fuse.h"
#include "codegen/kernel/backend.h"
#include "codegen/passes/pipeline.h"
#include "codegen/plan/execute.h"

namespace hindcast::tests {
namespace {

using capture::Answer;
using capture::ValueId;

class RecordWrites final : public capture::Policy {
 public:
  Answer draws_random_numbers(const c10::OperatorHandle&) override { return Answer::Refuse; }
  Answer depends_on_data(const c10::OperatorHandle&) override { return Answer::Refuse; }
  Answer returns_no_tensor(const c10::OperatorHandle&) override { return Answer::Refuse; }
  Answer writes_to_given(const c10::OperatorHandle&, const capture::TracingTensor&) override { return Answer::Record; }
  at::Tensor lift(const at::Tensor&) override { return {}; }
};

double unit_of(at::ScalarType type) {
  switch (type) {
    case at::kDouble:
      return std::numeric_limits<double>::epsilon();
    case at::kBFloat16:
      return 0x1p-7;
    case at::kHalf:
      return 0x1p-10;
    default:
      return std::numeric_limits<float>::epsilon();
  }
}

}  // namespace

ForwardProgram::ForwardProgram(const Function& function, const Tensors& inputs, SizesAre sizes, codegen::RunLater later) {
  EXPECT_TRUE(capture::recorder_available());
  record(function, inputs, sizes);
  graph_->verify();
  const auto* backend = codegen::backend_of(*graph_);
  const auto optimised = codegen::optimise(graph_, backend->cost_model()).graph;
  const codegen::Schedule schedule = codegen::fuse(*optimised, backend->cost_model());
  for (const auto& item : schedule.items) {
    const capture::Instr& instr = optimised->instrs[item.is_group ? 0 : item.index];
    const bool is_view = !item.is_group && optimised->values[instr.outputs[0].index].is_view;
    if (!item.is_group && !is_view) left_.push_back(c10::toString(instr.op->operator_name()));
  }
  kernels_ = schedule.groups.size();
  plan_ = std::make_unique<codegen::Plan>(optimised, schedule, [&](uint32_t group) {
    std::string why_not;
    const auto kernel = backend->kernel(schedule.groups[group].body, why_not, later);
    EXPECT_NE(kernel, nullptr) << why_not;
    return backend->call(schedule.groups[group], kernel);
  });
}

Tensors ForwardProgram::run(const Tensors& inputs) const {
  capture::Bindings bindings;
  for (const auto& [size, place] : symbols_) bindings.ints.push_back(inputs[place.first].size(place.second));
  capture::Env env;
  EXPECT_TRUE(plan_->evaluator().evaluate(bindings, env));
  EXPECT_TRUE(plan_->evaluator().relations_hold(env));
  codegen::Slots slots(plan_->slot_count());
  std::copy(inputs.begin(), inputs.end(), slots.begin());
  EXPECT_EQ(codegen::execute(*plan_, 0, slots, env), plan_->steps().size());
  Tensors results;
  for (const ValueId output : plan_->graph().outputs) results.push_back(slots[plan_->slot_of(output)]);
  return results;
}

void ForwardProgram::record(const Function& function, const Tensors& inputs, SizesAre sizes_are) {
  RecordWrites policy;
  capture::Recorder recorder(*graph_, policy);
  std::map<int64_t, capture::ExprId> symbol_of;
  Tensors stand_ins;
  for (size_t i = 0; i < inputs.size(); ++i) {
    std::vector<capture::ExprId> sizes;
    for (int64_t dim = 0; dim < inputs[i].dim(); ++dim) {
      const int64_t size = inputs[i].size(dim);
      if (sizes_are == SizesAre::Constants || size <= 1) {
        sizes.push_back(graph_->symbols->integer(size));
        continue;
      }
      const auto [symbol, is_new] = symbol_of.try_emplace(size);
      if (is_new) symbol->second = graph_->symbols->size_symbol(size), symbols_.push_back({size, {i, dim}});
      sizes.push_back(symbol->second);
    }
    graph_->inputs.push_back(recorder.new_value(inputs[i], sizes));
    stand_ins.push_back(recorder.stand_in(inputs[i].clone(), graph_->inputs.back()));
  }
  recorder.begin(0);
  const capture::Recorder::Scope scope(recorder);
  for (const at::Tensor& result : function(stand_ins)) graph_->outputs.push_back(recorder.value_of(result));
  EXPECT_EQ(recorder.refusal(), std::nullopt);
}

Tensors as(const Tensors& inputs, at::ScalarType type) {
  Tensors converted;
  for (const at::Tensor& input : inputs)
    converted.push_back(input.to(input.is_floating_point() ? type : input.scalar_type(), /*non_blocking=*/false, /*copy=*/true));
  return converted;
}

void expect_near(const at::Tensor& ours, const at::Tensor& stock, const at::Tensor& truth, int units, double terms) {
  EXPECT_EQ(ours.scalar_type(), stock.scalar_type());
  EXPECT_EQ(ours.sizes(), stock.sizes());
  EXPECT_EQ(ours.strides(), stock.strides());
  if (ours.sizes() != stock.sizes() || ours.numel() == 0) return;
  const at::Tensor exact = truth.to(at::kDouble), finite = exact.isfinite();
  const auto special = [&](const at::Tensor& result) { return result.to(at::kDouble).masked_fill(finite, 0).nan_to_num(7, 8, 9); };
  // ATen's vectors give NaN for gelu(inf), and something else in float64.
  EXPECT_TRUE((special(ours).eq(special(stock)) | special(ours).eq(special(truth))).all().item<bool>()) << "infinities and NaN";
  const auto error = [&](const at::Tensor& result) {
    return (result.to(at::kDouble) - exact).masked_fill(finite.logical_not(), 0).abs().max().item<double>();
  };
  const double scale = std::max(terms, exact.masked_fill(finite.logical_not(), 0).abs().max().item<double>());
  EXPECT_LE(error(ours), 2 * error(stock) + units * unit_of(stock.scalar_type()) * scale) << "ATen is off by " << error(stock);
}

void expect_near(const Tensors& ours, const Tensors& stock, const Tensors& truth, int units) {
  ASSERT_EQ(ours.size(), stock.size());
  for (size_t i = 0; i < ours.size(); ++i) {
    SCOPED_TRACE("result " + std::to_string(i));
    expect_near(ours[i], stock[i], truth[i], units);
  }
}

}  // namespace hindcast::tests
