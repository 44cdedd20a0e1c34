#include "codegen/passes/own_outputs.h"

#include "capture/graph/known_op.h"
#include "codegen/fuse/member.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

namespace hindcast::codegen {

using capture::Arg;
using capture::Graph;
using capture::Value;
using capture::ValueId;

namespace {

// Bytes of an input. Copying a smaller one later costs no more, and there may be no kernel to fuse the copy with.
constexpr int64_t kSmall = 64 << 10;

bool is_dense(const Graph& graph, const Value& value) {
  if (value.strides.size() != value.sizes.size()) return false;  // sparse
  int64_t expected = 1;
  for (size_t dim = value.sizes.size(); dim-- > 0;) {
    const int64_t size = graph.symbols->hint(value.sizes[dim]);
    if (size != 1 && value.strides[dim] != expected) return false;
    expected *= size;
  }
  return true;
}

// A copy as a multiplication by 1, which preserves all bits and can be fused.
capture::Instr copy_of(Graph& graph, ValueId value) {
  static constinit capture::KnownOp mul("aten::mul", "Scalar");
  Value copy = graph.values[value.index];
  copy.is_view = false;
  graph.values.push_back(std::move(copy));
  capture::Instr instr;
  instr.op = mul.get();
  instr.args = {{Arg::Kind::Value, {}, {value}, {}}, {Arg::Kind::Constant, 1, {}, {}}};
  instr.outputs = {ValueId{static_cast<uint32_t>(graph.values.size() - 1)}};
  return instr;
}

bool reads(const capture::Instr& instr, ValueId value) {
  bool is_read = false;
  capture::for_each_use(instr, [&](ValueId used) { is_read = is_read || used == value; });
  return is_read;
}

// Replaces `value` by `instead` in the uses for which `is_one` is true.
template <class IsOne>
void read_instead(Graph& graph, ValueId value, ValueId instead, IsOne is_one) {
  const auto replace = [&](ValueId& used) {
    if (used == value) used = instead;
  };
  for (size_t i = 0; i < graph.instrs.size(); ++i) {
    if (!reads(graph.instrs[i], value) || !is_one(graph.instrs[i])) continue;
    capture::Instr& instr = graph.instrs.edit(i);
    for (Arg& arg : instr.args) std::for_each(arg.values.begin(), arg.values.end(), replace);
    std::for_each(instr.inputs.begin(), instr.inputs.end(), replace);
    replace(instr.base);
  }
}

bool is_in_kernels(const Graph& graph, const capture::Instr& instr) {
  return capture::computes(instr) && describe(graph, instr).has_value();
}

// The copy of an input comes first in the graph, and its readers read the copy, so that they may be fused with it.
ValueId add_copy(Graph& graph, ValueId value, bool is_input) {
  capture::Instr instr = copy_of(graph, value);
  const ValueId copy = instr.outputs[0];
  if (is_input) read_instead(graph, value, copy, [](const capture::Instr&) { return true; });
  if (is_input) {
    graph.instrs.insert_front({std::move(instr)});
  } else {
    graph.instrs.push_back(std::move(instr));
  }
  return copy;
}

}  // namespace

std::shared_ptr<const Graph> with_own_outputs(const std::shared_ptr<const Graph>& graph, std::span<const uint32_t> outputs) {
  std::unordered_set<uint32_t> inputs, taken;
  for (const ValueId input : graph->inputs) inputs.insert(input.index);
  std::unordered_map<uint32_t, ValueId> copies;  // by input
  std::shared_ptr<Graph> copy;
  for (const uint32_t place : outputs) {
    const ValueId output = graph->outputs.at(place);
    if (!output.defined()) continue;
    const Value& value = graph->values[output.index];
    const bool is_input = inputs.contains(output.index);
    if (!is_input && taken.insert(output.index).second) continue;
    if (!value.defined || !c10::isFloatingType(value.dtype) || !is_dense(*graph, value) || (is_input && bytes_of(*graph, value) < kSmall))
      continue;
    if (!copy) copy = std::make_shared<Graph>(*graph);
    const auto known = copies.find(output.index);
    copy->outputs[place] = known == copies.end() ? add_copy(*copy, output, is_input) : add_copy(*copy, known->second, false);
    if (is_input) copies.emplace(output.index, copy->outputs[place]);
  }
  if (!copy) return graph;
  copy->verify();
  return copy;
}

std::vector<ValueId> gradients_for_leaves(const Graph& graph, const CostModel& costs) {
  // User code may write to the gradient, and later readers would have to see that.
  const auto runs_user_code = [](const capture::Instr& instr) {
    return capture::is_barrier(instr) || (!capture::computes(instr) && instr.order == capture::EventOrder::Leave);
  };
  std::unordered_set<uint32_t> inputs;
  for (const ValueId input : graph.inputs) inputs.insert(input.index);
  std::vector<ValueId> for_leaves;
  for (size_t i = 0; i < graph.instrs.size(); ++i) {
    const capture::Instr& instr = graph.instrs[i];
    if (runs_user_code(instr)) return {};
    if (!capture::keeps(instr) || !instr.inputs[0].defined() || !inputs.contains(instr.inputs[0].index)) continue;
    const Value& value = graph.values[instr.inputs[0].index];
    const bool is_worth_it = value.defined && c10::isFloatingType(value.dtype) && value.device.type() == costs.device() &&
                             is_dense(graph, value) && bytes_of(graph, value) >= costs.limits().leaf_bytes;
    // Once per gradient, at the first of its leaves.
    if (is_worth_it && inputs.erase(instr.inputs[0].index) != 0) for_leaves.push_back(instr.inputs[0]);
  }
  std::erase_if(for_leaves, [&](ValueId gradient) {
    for (size_t i = 0; i < graph.instrs.size(); ++i) {
      if (reads(graph.instrs[i], gradient) && is_in_kernels(graph, graph.instrs[i])) return false;
    }
    return true;
  });
  return for_leaves;
}

// Readers that cannot be in a kernel continue to read the gradient itself.
OwnGradients with_own_gradients(const std::shared_ptr<const Graph>& graph, std::span<const ValueId> gradients) {
  if (gradients.empty()) return {graph};
  const std::shared_ptr<Graph> copy = graph->copy();
  OwnGradients own;
  for (const ValueId gradient : gradients) {
    capture::Instr instr = copy_of(*copy, gradient);
    const auto reads_copy = [&](const capture::Instr& reader) { return capture::keeps(reader) || is_in_kernels(*copy, reader); };
    for (size_t i = 0; i < copy->instrs.size(); ++i) {
      if (capture::keeps(copy->instrs[i]) && reads(copy->instrs[i], gradient)) instr.origin = copy->instrs[i].origin;
    }
    read_instead(*copy, gradient, instr.outputs[0], reads_copy);
    own.copies.push_back(instr.outputs[0]);
    copy->instrs.insert_front({std::move(instr)});
  }
  copy->verify();
  own.graph = copy;
  return own;
}

}  // namespace hindcast::codegen
