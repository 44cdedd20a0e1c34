#include "engine/aot/without_statistics.h"

#include "capture/graph/known_op.h"

#include <algorithm>
#include <string_view>
#include <utility>

namespace hindcast::engine {

using capture::Arg;
using capture::Instr;
using capture::ValueId;

namespace {

bool is_op(const Instr& instr, std::string_view name) {
  return instr.kind == capture::InstrKind::Op && instr.op->operator_name().name == name && instr.op->operator_name().overload_name.empty();
}

bool is_true(const Arg& arg) { return arg.kind == Arg::Kind::Constant && arg.constant.isBool() && arg.constant.toBool(); }

// Computes new running statistics beside the result.
bool updates_statistics(const Instr& instr) { return is_op(instr, "aten::_native_batch_norm_legit_functional") && is_true(instr.args[5]); }

// In training mode the derivative is of the batch's statistics.
bool is_given_statistics_in_vain(const Instr& instr) { return is_op(instr, "aten::native_batch_norm_backward") && is_true(instr.args[7]); }

constexpr size_t kShared = 3;  // the first results of both operators: the normalised tensor, and the batch's mean and deviation

// The same batch norm without running statistics. It makes the values that `updating` made; `updating` gets values that nothing reads.
Instr take_over_results(Instr& updating, capture::Graph& graph) {
  static constinit capture::KnownOp no_stats("aten::_native_batch_norm_legit", "no_stats");
  Instr instr = updating;
  instr.op = no_stats.get();
  instr.args.erase(instr.args.begin() + 3, instr.args.begin() + 5);
  instr.outputs.resize(kShared);
  for (size_t i = 0; i < kShared; ++i) {
    if (!updating.outputs[i].defined()) continue;
    graph.values.push_back(capture::Value(graph.values[updating.outputs[i].index]));
    updating.outputs[i] = ValueId{static_cast<uint32_t>(graph.values.size() - 1)};
  }
  return instr;
}

}  // namespace

capture::Joint without_running_statistics(const capture::Joint& joint) {
  const auto& instrs = joint.graph->instrs;
  if (std::none_of(instrs.begin(), instrs.end(), updates_statistics)) return joint;
  auto graph = std::make_shared<capture::Graph>(*joint.graph);
  graph->instrs.clear();
  capture::Joint made = joint;
  for (uint32_t i = 0; i < instrs.size(); ++i) {
    if (updates_statistics(instrs[i])) {
      Instr updating = instrs[i];
      graph->instrs.push_back(take_over_results(updating, *graph));
      graph->instrs.push_back(std::move(updating));
      made.forward_end += i < joint.forward_end ? 1 : 0;
      continue;
    }
    graph->instrs.share(instrs, i);
    if (!is_given_statistics_in_vain(instrs[i])) continue;
    Instr& backward = graph->instrs.edit_back();
    for (const size_t arg : {3, 4}) backward.args[arg] = {};
  }
  made.graph = std::move(graph);
  return made;
}

}  // namespace hindcast::engine
