#include "codegen/passes/pipeline.h"

#include "base/format.h"
#include "base/log.h"
#include "base/trace.h"
#include "codegen/passes/common_subexpressions.h"
#include "codegen/passes/dead_code.h"
#include "codegen/passes/fills.h"
#include "codegen/passes/numbers.h"
#include "codegen/passes/simplify.h"
#include "codegen/passes/slices_to_concat.h"
#include "codegen/passes/sums_of_slices.h"
#include "codegen/passes/transposed_factors.h"

#include <array>

namespace hindcast::codegen {

using capture::Graph;
using capture::ValueId;

namespace {

// Wraps a pass that does not depend on the device.
template <Rewrite (*rewrite)(const Graph&)>
Rewrite anywhere(const Graph& graph, const CostModel&) {
  return rewrite(graph);
}

// Fills and simplification come first, so that equal ops have equal arguments; dead code elimination is last, to remove what the others
// left.
constexpr std::array kPasses = {
    Pass{"fills", anywhere<fills>},
    Pass{"numbers", anywhere<numbers>},
    Pass{"simplify", anywhere<simplify>},
    Pass{"common_subexpressions", common_subexpressions},
    Pass{"slices_to_concat", anywhere<slices_to_concat>, false},
    Pass{"sums_of_slices", sums_of_slices, false},
    Pass{"transposed_factors", anywhere<transposed_factors>, false},
    Pass{"dead_code", anywhere<dead_code>},
};

std::string describe(const Rewrite& rewrite) {
  std::string text;
  for (const auto& [why, count] : rewrite.reasons) text += base::format("{}{} {}", text.empty() ? "" : ", ", count, why);
  return text;
}

void log_pass(const Pass& pass, const Rewrite& rewrite, const Graph& graph) {
  if (rewrite.empty()) {
    HC_LOG(Graph, Info, "graph {} after {}: (unchanged)", graph.id, pass.name);
  } else {
    if (!base::tracing() && !base::enabled(base::Channel::Graph, base::Level::Info)) return;
    const std::string sentence =
        base::format("graph {} after {}: {} instrs; {}", graph.id, pass.name, graph.instrs.size(), describe(rewrite));
    HC_LOG(Graph, Info, "{}\n{}", sentence, graph.print());
    if (base::tracing()) base::write_record("pass", std::move(base::JsonObject().add("graph", graph.id).add("text", sentence)));
  }
}

}  // namespace

std::span<const Pass> passes() { return kPasses; }

ValueId Optimised::replacement_of(ValueId value) const {
  const auto found = replaced.find(value.index);
  return found == replaced.end() ? value : found->second;
}

Optimised optimise(std::shared_ptr<const Graph> graph, const CostModel& costs, bool bitwise) {
  Optimised result{std::move(graph)};
  for (const Pass& pass : kPasses) {
    if (bitwise && !pass.keeps_signs_of_zeros) continue;
    const Rewrite rewrite = pass.run(*result.graph, costs);
    if (!rewrite.empty()) {
      result.keeps_signs_of_zeros = result.keeps_signs_of_zeros && pass.keeps_signs_of_zeros;
      result.graph = rewritten(*result.graph, rewrite);
      for (auto& [value, instead] : result.replaced) instead = rewrite.replacement_of(instead);
      result.replaced.insert(rewrite.replaced.begin(), rewrite.replaced.end());
    }
    log_pass(pass, rewrite, *result.graph);
  }
  return result;
}

}  // namespace hindcast::codegen
