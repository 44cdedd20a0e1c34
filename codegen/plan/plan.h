#pragma once
// The ordered steps of a graph, built once per graph: values become slots, and the last use of every slot is known, so that a tensor is
// freed, moved or written in place as early as possible.

#include "codegen/fuse/schedule.h"
#include "codegen/plan/op_call.h"
#include "hindcast/graph.h"

#include <functional>
#include <span>

namespace hindcast::codegen {

inline constexpr uint32_t kNoSlot = 0xffffffffu;

struct SlotUse {
  uint32_t slot = kNoSlot;  // kNoSlot: an undefined tensor
  bool last = false;        // this is the slot's last use: the tensor is moved out
};

struct StepArg {
  capture::Arg::Kind kind = capture::Arg::Kind::Constant;
  c10::IValue constant;
  c10::SmallVector<SlotUse, 1> slots;
  c10::SmallVector<capture::ExprId, 2> exprs;
};

struct PlannedView {
  c10::OperatorHandle op;
  std::vector<StepArg> args;
  uint32_t self_arg = 0;
  uint32_t output = 0;
};

/// The slot's tensor, or an undefined one; given away where this is its last use.
inline at::Tensor take(Slots& slots, SlotUse use) {
  if (use.slot == kNoSlot) return {};
  return use.last ? std::move(slots[use.slot]) : slots[use.slot];
}

struct Step {
  capture::InstrKind kind;
  uint32_t instr = 0;   // index into Graph::instrs; for a kernel, the last instr of its group
  uint32_t origin = 0;  // Instr::origin
  uint32_t event = 0;   // Event: its number among the plan's events
  std::optional<c10::OperatorHandle> op;
  std::unique_ptr<const OpCall> call_op;
  std::vector<StepArg> args;
  c10::SmallVector<SlotUse, 2> inputs;
  c10::SmallVector<uint32_t, 2> outputs;  // kNoSlot: the result is not read
  std::vector<PlannedView> views;
  capture::SeenOfAutograd seen;  // Instr::seen
  SlotUse base;
  uint32_t target_arg = 0;
  /// For a kernel: a leaf whose gradient is one of its results, as in Group::leaves.
  struct Leaf {
    uint32_t instr = 0;         // the event that keeps the gradient
    uint32_t origin = 0;        // Instr::origin of that event
    bool takes_result = false;  // the leaf takes the result itself and needs no buffer
  };
  std::vector<Leaf> leaves;
  uint32_t first_leaf = 0;   // index of leaves[0] in the plan's list of all leaves; there is one LeafRequest per leaf
  bool sum_is_view = false;  // AddGrads: the first gradient is a view
  /// The result is a view of the first argument, and user code sees it or a view of it: both share a version counter, as with autograd.
  bool shares_version = false;
};

/// Calls visit(use) for each slot that the step reads: an event's too, undefined tensors not.
template <class Visit>
void for_each_slot(const Step& step, Visit visit) {
  const auto visit_defined = [&](SlotUse use) {
    if (use.slot != kNoSlot) visit(use);
  };
  for (const StepArg& arg : step.args) {
    for (const SlotUse use : arg.slots) visit_defined(use);
  }
  for (const SlotUse use : step.inputs) visit_defined(use);
  visit_defined(step.base);
}

/// A segment for a user's graph compiler, in slots.
struct PlannedSegment {
  uint32_t first_instr = 0, last_instr = 0;
  std::vector<uint32_t> inputs, outputs;
};

/// The size `dim` of the tensor in `slot`, read after `step` has run, is the value of the next unbacked symbol.
struct SizeToBind {
  uint32_t step = 0, slot = 0, dim = 0;
};

class PreparedRuns;

class Plan {
 public:
  /// Makes the call of a group, given its index into Schedule::groups.
  using MakeGroupCall = std::function<std::unique_ptr<const OpCall>(uint32_t group)>;

  /// Runs every instr through ATen, in captured order.
  explicit Plan(std::shared_ptr<const capture::Graph> graph);
  /// Runs in the order of `schedule`; its groups run by the calls that `make_group_call` returns.
  Plan(std::shared_ptr<const capture::Graph> graph, const Schedule& schedule, const MakeGroupCall& make_group_call);
  virtual ~Plan();
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;

  const capture::Graph& graph() const { return *graph_; }
  std::shared_ptr<const capture::Graph> shared_graph() const { return graph_; }
  const std::vector<Step>& steps() const { return steps_; }
  const std::vector<PlannedSegment>& segments() const { return segments_; }
  const std::vector<SizeToBind>& sizes_to_bind() const { return sizes_to_bind_; }
  uint32_t slot_count() const { return slot_count_; }
  /// Number of leaves of all kernels.
  uint32_t leaf_count() const { return leaf_count_; }
  /// The slot of a value; kNoSlot if the value is undefined or unused.
  uint32_t slot_of(capture::ValueId value) const { return value.defined() ? slots_[value.index] : kNoSlot; }
  /// Whether user code runs between steps.
  bool has_barriers() const { return has_barriers_; }
  const capture::Evaluator& evaluator() const { return evaluator_; }
  /// Whether the plan runs op by op in captured order, so that no read or write moves relative to the capture.
  bool is_as_captured() const { return is_as_captured_; }
  /// The prepared runs of this plan, for callers that run all steps at once.
  const PreparedRuns& prepared_runs() const { return *prepared_runs_; }
  /// Bytes of host memory that the plan holds, excluding its graph.
  virtual size_t footprint() const;

 protected:
  /// A slot that must stay alive up to a position in the schedule, for a reader that is not a step.
  struct Hold {
    uint32_t slot, place;
  };
  /// Called after slots are assigned and before steps are built.
  using FindHolds = std::function<std::vector<Hold>(const Plan&)>;
  Plan(std::shared_ptr<const capture::Graph> graph, const Schedule& schedule, const MakeGroupCall& make_group_call,
       const FindHolds& find_holds);
  /// The holds that extend beyond the last use by a step.
  const std::vector<Hold>& holds() const { return holds_; }

 private:
  void assign_slots();
  void find_sizes_to_bind();
  std::vector<uint32_t> find_last_uses(const Schedule& schedule, const FindHolds& find_holds);
  void add_steps(const Schedule& schedule, const MakeGroupCall& make_group_call, const std::vector<uint32_t>& last_use);
  // Both by instr.
  std::vector<bool> find_views_to_be_copied() const;
  std::vector<bool> find_shown_views() const;
  void add_step(uint32_t instr, uint32_t place, const std::vector<uint32_t>& last_use, bool is_copied, bool is_shown);
  void add_step(const Group& group, uint32_t place, const std::vector<uint32_t>& last_use, std::unique_ptr<const OpCall> call);
  StepArg plan_arg(const capture::Arg& arg, uint32_t place, const std::vector<uint32_t>& last_use);

  std::shared_ptr<const capture::Graph> graph_;
  std::vector<Step> steps_;
  std::vector<PlannedSegment> segments_;
  std::vector<SizeToBind> sizes_to_bind_;
  std::vector<uint32_t> slots_;
  std::vector<Hold> holds_;
  uint32_t slot_count_ = 0, leaf_count_ = 0, event_count_ = 0;
  bool has_barriers_ = false, is_as_captured_ = false;
  capture::Evaluator evaluator_;
  const std::unique_ptr<const PreparedRuns> prepared_runs_;
};

}  // namespace hindcast::codegen
