#include "engine/diagnosis/replay_leg.h"

#include "base/check.h"
#include "capture/graph/value_uses.h"
#include "engine/diagnosis/non_finite.h"

namespace hindcast::engine {

using capture::Graph;
using capture::Instr;
using capture::ValueId;

Given::Given(at::Tensor given) : tensor(std::move(given)) {
  if (tensor.defined() && !tensor.is_inference()) version = static_cast<uint32_t>(tensor._version());
}

bool Given::was_changed() const {
  return tensor.defined() && !tensor.is_inference() && static_cast<uint32_t>(tensor._version()) != version;
}

capture::Env env_of(const Leg& leg) {
  if (leg.env) return *leg.env;
  capture::Env env;
  const auto& symbols = *leg.graph->symbols;
  HC_CHECK(capture::Evaluator(symbols).evaluate(capture::bindings_at_capture(symbols), env));
  return env;
}

Values given_to(const Leg& leg) {
  Values values;
  for (const auto& [value, given] : leg.inputs) values[value.index] = given.tensor;
  const auto starts = leg.graph->resume_inputs();
  for (size_t i = 0; i < starts.size(); ++i) {
    if (starts[i].defined())
      values[starts[i].index] = i < leg.values.size() ? leg.values[i].tensor : leg.buffers[i - leg.values.size()].second.tensor;
  }
  return values;
}

void replay(const Leg& leg, const Visit& visit) {
  const Graph& graph = *leg.graph;
  const capture::Env env = env_of(leg);
  const capture::ValueUses uses(graph);
  Values values = given_to(leg);
  for (uint32_t i = 0; i < graph.instrs.size(); ++i) {
    capture::Graph::replay(values, graph.instrs[i], env);
    if (!visit(i, values)) return;
    const auto drop = [&](ValueId value) {
      if (value.defined() && (uses.users_of(value).empty() || uses.users_of(value).back() == i)) values.erase(value.index);
    };
    capture::for_each_use(graph.instrs[i], drop);
    for (const ValueId value : graph.instrs[i].outputs) drop(value);
  }
}

std::vector<bool> find_non_finite(const Leg& leg) {
  std::vector<bool> found(leg.graph->values.size());
  for (const auto& [value, tensor] : given_to(leg)) found[value] = has_non_finite(tensor);
  try {
    replay(leg, [&](uint32_t i, const Values& values) {
      const Instr& instr = leg.graph->instrs[i];
      for (const ValueId value : instr.outputs) {
        if (const auto made = values.find(value.index); value.defined() && made != values.end())
          found[value.index] = has_non_finite(made->second);
      }
      return true;
    });
  } catch (const std::exception&) {  // the op at which the backward threw
  }
  return found;
}

}  // namespace hindcast::engine
