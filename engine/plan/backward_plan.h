#pragma once
// The plan of a captured backward: the steps of its graph, and what each event needs to know.

#include "capture/backward/backward_graph.h"
#include "codegen/plan/plan.h"

#include <span>
#include <unordered_map>
#include <vector>

namespace hindcast::engine {

inline constexpr uint32_t kNoLeaf = 0xffffffffu;

/// What an event needs beyond its Step. The node is Step::origin. Small, since each node has two or more events.
struct EventStep {
  capture::EventKind kind = capture::EventKind::NodeStart;
  capture::HookStage stage = capture::HookStage::TensorPre;
  uint32_t result = 0;       // Capture: the result's index
  uint32_t kept_inputs = 0;  // Hook: see capture::Event
  uint32_t leaf = kNoLeaf;   // Accumulate: the leaf tensor's number among those of all kernels of the plan
  uint32_t end_call = 0;     // NodeStart, Hook, CallNode: end of the range of nodes, from its own on, that must be as they were collected
  // Release: the number of consecutive Release steps, and the index of the first one's node in released().
  uint32_t releases = 0, first_release = 0;
};

class BackwardPlan final : public codegen::Plan {
 public:
  /// Runs every instr through ATen.
  explicit BackwardPlan(const std::shared_ptr<const capture::BackwardGraph>& graph);
  /// Runs groups and instrs in the order of `schedule`.
  BackwardPlan(const std::shared_ptr<const capture::BackwardGraph>& graph, const codegen::Schedule& schedule,
               const MakeGroupCall& make_group_call);

  const capture::BackwardGraph& backward() const { return static_cast<const capture::BackwardGraph&>(graph()); }
  std::shared_ptr<const capture::BackwardGraph> shared_backward() const {
    return std::static_pointer_cast<const capture::BackwardGraph>(shared_graph());
  }
  const EventStep& event_of(const codegen::Step& step) const { return events_[step.event]; }
  /// Slots that stay alive up to this event only because the run may stop there.
  std::span<const uint32_t> waited_last(const codegen::Step& step) const;
  /// Slots before this one hold collected tensors; slots from it on hold gradients that flow in at the start.
  uint32_t first_resume_slot() const { return backward().tensor_count; }
  /// Nodes that a Release step and the consecutive ones after it release. A run iterates over these, since steps are larger.
  std::span<const uint32_t> released(const EventStep& event) const {
    return std::span(released_).subspan(event.first_release, event.releases);
  }
  /// AccumulateGrad nodes that get a gradient.
  const std::vector<uint32_t>& accumulating_calls() const { return accumulating_calls_; }
  /// True for the slot of a saved tensor that is read after its node has finished.
  bool flows_on(uint32_t tensor_slot) const { return flows_on_[tensor_slot]; }

  size_t footprint() const override;

 private:
  void add_events();
  void find_what_flows_on(const codegen::Schedule& schedule);

  std::vector<EventStep> events_;                                    // by Step::event
  std::unordered_map<uint32_t, std::vector<uint32_t>> waited_last_;  // by Step::event
  std::vector<uint32_t> released_, accumulating_calls_;
  std::vector<bool> flows_on_;
};

/// The plan of a captured graph: a BackwardPlan for a BackwardGraph.
std::shared_ptr<const codegen::Plan> plan_of(const std::shared_ptr<const capture::Graph>& graph);
std::shared_ptr<const codegen::Plan> plan_of(const std::shared_ptr<const capture::Graph>& graph, const codegen::Schedule& schedule,
                                             const codegen::Plan::MakeGroupCall& make_group_call);

}  // namespace hindcast::engine
