#pragma once
// The ordered steps of one backward, made from a graph once: values become slots, and every slot knows its last use, so
// that a tensor is freed, moved or written in place as early as the stock engine would.

#include "capture/graph/graph.h"
#include "codegen/fuse/fuse.h"

#include <ATen/core/stack.h>

#include <functional>
#include <unordered_map>

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

/// What a slot of Step::leaves may hold beside tensors of the backward.
const at::Tensor& buffer_wanted();
const at::Tensor& gradient_added();

/// Runs an Op or Mutate step: takes its arguments from the slots, calls ATen, puts the results back.
class OpCall {
 public:
  virtual ~OpCall() = default;
  virtual void run(const Step& step, Slots& slots, const capture::Env& env) const = 0;
  /// Answers what Step::leaves ask for.
  virtual bool writes_leaves() const { return false; }
  /// For a step that is no single ATen op.
  virtual std::string describe() const { return {}; }
  /// Bytes that it holds.
  virtual size_t footprint() const { return 64; }
};

struct Step {
  capture::InstrKind kind;
  capture::HookStage stage = capture::HookStage::TensorPre;
  uint32_t call = 0;
  uint32_t instr = 0;  // index into Graph::instrs
  std::optional<c10::OperatorHandle> op;
  std::unique_ptr<const OpCall> call_op;
  std::vector<StepArg> args;
  c10::SmallVector<SlotUse, 2> inputs;
  c10::SmallVector<uint32_t, 2> outputs;  // kNoSlot: nobody reads it
  std::vector<PlannedView> views;
  SlotUse base;
  uint32_t target_arg = 0;
  uint32_t result = 0;
  uint32_t kept_inputs = 0;
  /// A kernel's: leaves that get its results as their gradients, as Group::leaves. The slot of each says what is asked of the
  /// kernel, and behind it what the kernel did, which the leaf's Accumulate step goes by:
  ///   undefined                     nothing
  ///   buffer_wanted()               a buffer of its own; then that buffer, filled
  ///   the `.grad` that it has       the result added to it; then gradient_added(), or undefined where it could not be added in place
  struct Leaf {
    uint32_t slot = kNoSlot;
    uint32_t call = 0;          // of its AccumulateGrad
    bool takes_result = false;  // asks for no buffer
  };
  std::vector<Leaf> leaves;
  uint32_t leaf_slot = kNoSlot;       // Accumulate: that slot
  bool sum_is_view = false;           // AddGrads: the first gradient
  std::vector<uint32_t> waited_last;  // slots that are in use only in case the backward is left here
  uint32_t end_call = 0;              // NodeStart, Hook, CallNode: nodes from `call` up to here must be as they were collected
};

/// A segment for a user's graph compiler, in slots.
struct PlannedSegment {
  uint32_t first_instr = 0, last_instr = 0;
  std::vector<uint32_t> inputs, outputs;
};

class Plan {
 public:
  using MakeKernelCall = std::function<std::unique_ptr<const OpCall>(const Group&)>;

  /// Every instr through ATen.
  explicit Plan(std::shared_ptr<const capture::Graph> graph);
  /// In the order of `schedule`, its groups by the calls that `make_kernel_call` gives.
  Plan(std::shared_ptr<const capture::Graph> graph, const Schedule& schedule, const MakeKernelCall& make_kernel_call);

  const capture::Graph& graph() const { return *graph_; }
  std::shared_ptr<const capture::Graph> shared_graph() const { return graph_; }
  const std::vector<Step>& steps() const { return steps_; }
  const std::vector<PlannedSegment>& segments() const { return segments_; }
  uint32_t slot_count() const { return slot_count_; }
  uint32_t first_resume_slot() const { return first_resume_slot_; }
  /// Slot of a value, kNoSlot for one that nobody reads.
  uint32_t slot_of(capture::ValueId value) const { return value.defined() ? slots_[value.index] : kNoSlot; }
  /// Hooks or opaque nodes among the steps: user code runs.
  bool has_boundaries() const { return has_boundaries_; }
  const capture::Evaluator& evaluator() const { return evaluator_; }
  /// Of leaves that get a gradient.
  const std::vector<uint32_t>& accumulating_calls() const { return accumulating_calls_; }
  /// True for the slot of a saved tensor that is read after its node is done.
  bool flows_on(uint32_t tensor_slot) const { return flows_on_[tensor_slot]; }
  /// Op by op in the order of the capture: nothing is read or written earlier or later than there.
  bool is_as_captured() const { return is_as_captured_; }
  /// Bytes that it holds, without its graph.
  size_t footprint() const;

 private:
  void assign_slots();
  void add_steps(const Schedule& schedule, const MakeKernelCall& make_kernel_call);
  void add_step(uint32_t instr, uint32_t place, const std::vector<uint32_t>& last_use);
  void add_step(const Group& group, uint32_t place, const std::vector<uint32_t>& last_use, const MakeKernelCall& make_kernel_call);
  void find_what_flows_on(const Schedule& schedule);
  StepArg plan_arg(const capture::Arg& arg, uint32_t place, const std::vector<uint32_t>& last_use);

  std::shared_ptr<const capture::Graph> graph_;
  std::vector<Step> steps_;
  std::vector<PlannedSegment> segments_;
  std::vector<uint32_t> slots_;
  std::vector<uint32_t> accumulating_calls_;
  std::unordered_map<uint32_t, uint32_t> leaf_slots_;  // by Accumulate instr
  uint32_t slot_count_ = 0, first_resume_slot_ = 0;
  std::vector<bool> flows_on_;
  bool has_boundaries_ = false, is_as_captured_ = false;
  capture::Evaluator evaluator_;
};

}  // namespace hindcast::codegen
