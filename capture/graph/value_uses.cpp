#include "capture/graph/value_uses.h"

namespace hindcast::capture {
namespace {

/// Calls visit(value, instr) for each defined value that an instr reads: once per value and instr, instrs in their order.
template <class Visit>
void visit_uses(const Graph& graph, Visit visit) {
  std::vector<uint32_t> last_user(graph.values.size(), base::kNoIndex);
  for (uint32_t i = 0; i < graph.instrs.size(); ++i) {
    for_each_use(graph.instrs[i], [&](ValueId value) {
      if (!value.defined() || last_user[value.index] == i) return;
      last_user[value.index] = i;
      visit(value, i);
    });
  }
}

}  // namespace

ValueUses::ValueUses(const Graph& graph)
    : makers_(graph.values.size(), base::kNoIndex),
      input_numbers_(graph.values.size(), base::kNoIndex),
      first_user_(graph.values.size() + 1),
      is_returned_(graph.values.size()) {
  for (uint32_t i = 0; i < graph.inputs.size(); ++i) {
    if (graph.inputs[i].defined()) input_numbers_[graph.inputs[i].index] = i;
  }
  for (uint32_t i = 0; i < graph.instrs.size(); ++i) {
    for (const ValueId value : graph.instrs[i].outputs) {
      if (value.defined()) makers_[value.index] = i;
    }
  }
  for (const ValueId value : graph.outputs) {
    if (value.defined()) is_returned_[value.index] = true;
  }
  visit_uses(graph, [&](ValueId value, uint32_t) { ++first_user_[value.index + 1]; });
  for (size_t value = 1; value < first_user_.size(); ++value) first_user_[value] += first_user_[value - 1];
  users_.resize(first_user_.back());
  std::vector<uint32_t> next(first_user_.begin(), first_user_.end() - 1);
  visit_uses(graph, [&](ValueId value, uint32_t i) { users_[next[value.index]++] = i; });
}

}  // namespace hindcast::capture
