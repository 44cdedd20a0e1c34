#pragma once
// The ordered steps of a graph, made once: values become slots, and every slot knows its last use, so that a tensor is freed, moved or
// written in place as early as can be.

#include "capture/graph/graph.h"
#include "codegen/fuse/schedule.h"
#include "codegen/plan/prepared_call.h"

#include <ATen/core/stack.h>

#include <functional>
#include <span>

namespace hindcast::codegen {

inline constexpr uint32_t kNoSlot = 0xffffffffu;

struct SlotUse {
  uint32_t slot = kNoSlot;  // kNoSlot: an undefined tensor
  bool last = false;        // the slot is given away
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

struct Step;
using Slots = std::vector<at::Tensor>;

/// The slot's tensor, or an undefined one; given away where this is its last use.
inline at::Tensor take(Slots& slots, SlotUse use) {
  if (use.slot == kNoSlot) return {};
  return use.last ? std::move(slots[use.slot]) : slots[use.slot];
}

/// What a run asks of a kernel for one of Step::leaves, and what the kernel answers. The leaf's Accumulate step does what is left.
struct LeafRequest {
  enum class State : uint8_t {
    None,          // nothing is asked, or the kernel could not do what was
    BufferWanted,  // a buffer of its own
    AddWanted,     // the result added to `gradient`, the `.grad` that the leaf has
    Filled,        // `gradient` is that buffer
    Added,
  };
  State state = State::None;
  at::Tensor gradient;
};

/// Runs an Op or Mutate step: takes its arguments from the slots, calls ATen, puts the results back.
class OpCall {
 public:
  virtual ~OpCall() = default;
  virtual void run(const Step& step, Slots& slots, const capture::Env& env) const = 0;
  /// The step has leaves whose requests the call answers.
  virtual bool writes_leaves() const { return false; }
  /// The same, and answers `requests`, by Step::leaves. Only where it writes_leaves().
  virtual void run_to_leaves(const Step& step, Slots& slots, const capture::Env& env, std::span<LeafRequest>) const {
    run(step, slots, env);
  }
  /// For tensors of the layouts of those in `slots`, and for these sizes. Null: each call has to look at its tensors.
  virtual std::unique_ptr<const PreparedCall> prepare(const Step& /*step*/, Slots& /*slots*/, const capture::Env& /*env*/) const {
    return nullptr;
  }
  /// For a step that is no single ATen op.
  virtual std::string describe() const { return {}; }
  /// Bytes that it holds.
  virtual size_t footprint() const { return 64; }
};

struct Step {
  capture::InstrKind kind;
  uint32_t instr = 0;   // index into Graph::instrs; of a kernel, the last of its group
  uint32_t origin = 0;  // Instr::origin
  uint32_t event = 0;   // Event: its number among the plan's events
  std::optional<c10::OperatorHandle> op;
  std::unique_ptr<const OpCall> call_op;
  std::vector<StepArg> args;
  c10::SmallVector<SlotUse, 2> inputs;
  c10::SmallVector<uint32_t, 2> outputs;  // kNoSlot: nobody reads it
  std::vector<PlannedView> views;
  capture::SeenOfAutograd seen;  // Instr::seen
  SlotUse base;
  uint32_t target_arg = 0;
  /// A kernel's: leaves that get its results as their gradients, as Group::leaves.
  struct Leaf {
    uint32_t instr = 0;         // the event that keeps the gradient
    uint32_t origin = 0;        // of that instr
    bool takes_result = false;  // asks for no buffer
  };
  std::vector<Leaf> leaves;
  uint32_t first_leaf = 0;   // number of leaves[0] among those of all kernels of the plan, which have a LeafRequest each
  bool sum_is_view = false;  // AddGrads: the first gradient
  /// Makes a view of its first argument that user code gets, or a view of which it gets: both count writes together, as views of autograd's do.
  bool shares_version = false;
};

/// A segment for a user's graph compiler, in slots.
struct PlannedSegment {
  uint32_t first_instr = 0, last_instr = 0;
  std::vector<uint32_t> inputs, outputs;
};

/// A run reads this size behind the step: it is the next unbacked symbol.
struct SizeToBind {
  uint32_t step = 0, slot = 0, dim = 0;
};

class PreparedRuns;

class Plan {
 public:
  /// The call of a group, by its index into Schedule::groups.
  using MakeGroupCall = std::function<std::unique_ptr<const OpCall>(uint32_t group)>;

  /// Every instr through ATen.
  explicit Plan(std::shared_ptr<const capture::Graph> graph);
  /// In the order of `schedule`, its groups by the calls that `make_group_call` gives.
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
  /// Leaves of all its kernels.
  uint32_t leaf_count() const { return leaf_count_; }
  /// Slot of a value, kNoSlot for one that nobody reads.
  uint32_t slot_of(capture::ValueId value) const { return value.defined() ? slots_[value.index] : kNoSlot; }
  /// User code runs among the steps.
  bool has_barriers() const { return has_barriers_; }
  const capture::Evaluator& evaluator() const { return evaluator_; }
  /// Op by op in the order of the capture: nothing is read or written earlier or later than there.
  bool is_as_captured() const { return is_as_captured_; }
  /// Of this plan, for who runs all of it at once.
  const PreparedRuns& prepared_runs() const { return *prepared_runs_; }
  /// Bytes that it holds, without its graph.
  virtual size_t footprint() const;

 protected:
  /// A slot that is in use up to a place of the schedule, whoever reads it there.
  struct Hold {
    uint32_t slot, place;
  };
  /// Asked when the slots are known and the steps are not.
  using FindHolds = std::function<std::vector<Hold>(const Plan&)>;
  Plan(std::shared_ptr<const capture::Graph> graph, const Schedule& schedule, const MakeGroupCall& make_group_call,
       const FindHolds& find_holds);
  /// Those that no step's own use reaches.
  const std::vector<Hold>& holds() const { return holds_; }

 private:
  void assign_slots();
  void find_sizes_to_bind();
  std::vector<uint32_t> find_last_uses(const Schedule& schedule, const FindHolds& find_holds);
  void add_steps(const Schedule& schedule, const MakeGroupCall& make_group_call, const std::vector<uint32_t>& last_use);
  /// By instr.
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
