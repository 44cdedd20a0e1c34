#include "tests/codegen/fuse/calls_left.h"

#include "codegen/cpu/cost_model.h"
#include "codegen/fuse/fuse.h"
#include "codegen/passes/pipeline.h"
#include "hindcast/hindcast.h"
#include "tests/support/kept_graphs.h"

namespace hindcast::tests {

std::vector<std::string> calls_left(const std::function<void()>& backward) {
  hindcast::reset();
  KeptGraphs kept;
  const auto guard = hindcast::enable(kept.compiler());
  backward();
  const auto optimised = codegen::optimise(kept.graphs.at(0), codegen::cpu::cost_model());
  std::vector<std::string> calls;
  for (const codegen::Schedule::Item& item : codegen::fuse(*optimised.graph, codegen::cpu::cost_model()).items) {
    const auto& instr = optimised.graph->instrs[item.index];
    if (item.is_group || !instr.op || optimised.graph->values[instr.outputs[0].index].is_view) continue;
    calls.push_back(c10::toString(instr.op->operator_name()));
  }
  return calls;
}

}  // namespace hindcast::tests
