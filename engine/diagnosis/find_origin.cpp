#include "engine/diagnosis/find_origin.h"

#include "capture/graph/value_uses.h"
#include "engine/diagnosis/non_finite.h"

#include <algorithm>

namespace hindcast::engine {
namespace {

using capture::BackwardGraph;
using capture::EventKind;
using capture::Instr;
using capture::InstrKind;
using capture::ValueId;

class Search {
 public:
  explicit Search(const std::vector<Leg>& legs) : legs_(legs) {}

  std::optional<Origin> run() {
    for (size_t l = 0; l < legs_.size(); ++l) {
      if (legs_[l].not_finite.empty()) continue;
      std::vector<Use> uses;
      for (const ValueId value : legs_[l].not_finite) uses.push_back({value, kNoInstr});
      return in_leg(l, uses);
    }
    // The value came from nodes that ran untraced: check what flowed into them.
    return before(legs_.size() - 1, {});
  }

 private:
  struct Use {
    ValueId value;
    uint32_t reader;
  };

  std::optional<Origin> in_leg(size_t l, std::vector<Use> uses) const {
    const BackwardGraph& graph = *legs_[l].graph;
    const std::vector<bool> not_finite = find_non_finite(legs_[l]);
    const capture::ValueUses value_uses(graph);
    std::optional<Origin> earliest;
    const auto consider = [&](uint32_t instr, ValueId given) {
      if (!earliest || instr < earliest->instr) earliest = Origin{l, instr, given};
    };
    std::vector<bool> seen(graph.instrs.size());
    std::vector<ValueId> from_before;
    while (!uses.empty()) {
      const Use use = uses.back();
      uses.pop_back();
      if (!use.value.defined() || !not_finite[use.value.index]) continue;
      const uint32_t made_by = value_uses.maker_of(use.value);
      if (made_by == kNoInstr) {
        const auto starts = graph.resume_inputs();
        if (l > 0 && std::find(starts.begin(), starts.end(), use.value) != starts.end()) from_before.push_back(use.value);
        consider(use.reader, use.value);
        continue;
      }
      if (seen[made_by]) continue;
      seen[made_by] = true;
      bool any = false;
      capture::for_each_use(graph.instrs[made_by], [&](ValueId value) {
        if (!value.defined() || !not_finite[value.index]) return;
        uses.push_back({value, made_by});
        any = true;
      });
      if (!any) consider(made_by, {});
    }
    if (!from_before.empty()) {
      if (auto origin = before(l, from_before)) return origin;
    }
    return earliest;
  }

  // Searches what flowed into leg `l`: `starts` of its graph, or everything non-finite if it has no graph.
  std::optional<Origin> before(size_t l, const std::vector<ValueId>& starts) const {
    const Leg& leg = legs_[l];
    const auto comes_in = [&](size_t i, const at::Tensor& tensor) {
      if (!leg.graph) return has_non_finite(tensor);
      return std::find(starts.begin(), starts.end(), leg.graph->resume_inputs()[i]) != starts.end();
    };
    std::vector<size_t> values, buffers;
    for (size_t i = 0; i < leg.values.size(); ++i) {
      if (comes_in(i, leg.values[i].tensor)) values.push_back(i);
    }
    for (size_t i = 0; i < leg.buffers.size(); ++i) {
      if (comes_in(leg.values.size() + i, leg.buffers[i].second.tensor)) buffers.push_back(i);
    }
    if (values.empty() && buffers.empty()) return std::nullopt;
    if (l == 0) return Origin{0, kNoInstr, {}};
    const BackwardGraph& former = *legs_[l - 1].graph;
    const uint32_t left_at = boundary(former, leg);
    if (left_at == kNoInstr) return std::nullopt;
    std::vector<Use> uses;
    if (!values.empty()) {
      const std::vector<bool> not_finite = find_non_finite(legs_[l - 1]);
      capture::for_each_use(former.instrs[left_at], [&](ValueId value) {
        if (value.defined() && not_finite[value.index]) uses.push_back({value, left_at});
      });
      if (uses.empty() && buffers.empty()) return Origin{l - 1, left_at, {}};
    }
    for (const size_t i : buffers) {
      ValueId waiting;
      for (uint32_t e = 0; e < former.event_of(former.instrs[left_at]).buffer_events; ++e) {
        if (former.buffer_events[e].input == leg.buffers[i].first) waiting = former.buffer_events[e].value;
      }
      uses.push_back({waiting, left_at});
    }
    return in_leg(l - 1, std::move(uses));
  }

  static uint32_t boundary(const BackwardGraph& graph, const Leg& next) {
    const auto is_it = [&](const Instr& instr) {
      if (instr.kind != InstrKind::Event || instr.origin != next.call) return false;
      const capture::Event& event = graph.event_of(instr);
      switch (next.stage) {
        case capture::Stage::NodeStart:
          return event.kind == EventKind::NodeStart;
        case capture::Stage::AfterTensorPre:
          return event.kind == EventKind::Hook && event.stage == capture::HookStage::TensorPre;
        case capture::Stage::AfterPre:
          return event.kind == EventKind::Hook && event.stage == capture::HookStage::Pre;
        case capture::Stage::AfterCall:
          return event.kind == EventKind::CallNode;
        case capture::Stage::AfterPost:
          return event.kind == EventKind::Hook && event.stage == capture::HookStage::Post;
      }
      return false;
    };
    const auto found = std::find_if(graph.instrs.begin(), graph.instrs.end(), is_it);
    return found == graph.instrs.end() ? kNoInstr : static_cast<uint32_t>(found - graph.instrs.begin());
  }

  const std::vector<Leg>& legs_;
};

}  // namespace

std::optional<Origin> find_origin(const std::vector<Leg>& legs) { return Search(legs).run(); }

}  // namespace hindcast::engine
