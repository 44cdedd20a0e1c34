#pragma once
// One captured backward: a program whose ATen calls are interleaved with events for everything else the engine does, in its order.

#include "hindcast/graph.h"

#include <span>

namespace hindcast::capture {

enum class EventKind : uint8_t {
  NodeStart,   // the steps of a node follow; reads the gradients waiting at the node's inputs
  Hook,        // user hooks of one node and stage; a barrier
  CallNode,    // an autograd node called as itself; a barrier
  Accumulate,  // AccumulateGrad: inputs[0] into the leaf's .grad; a barrier if the leaf has post-accumulate hooks
  Capture,     // inputs[0] becomes a result of grad()
  Release,     // the node's saved tensors are released (unless retain_graph)
};

enum class HookStage : uint8_t { TensorPre, Pre, Post };

/// The value of one fact of a barrier's results at capture: a number, or the expression of a dynamic size.
struct FactPattern {
  int64_t value = 0;
  std::optional<ExprId> expr;
};

/// Belongs to the node that is Instr::origin of its instr.
struct Event {
  EventKind kind = EventKind::NodeStart;
  HookStage stage = HookStage::TensorPre;
  uint32_t result = 0;                // Capture: which result
  uint32_t buffer_events = 0;         // how many of BackwardGraph::buffer_events precede it
  uint32_t kept_inputs = 0;           // Hook at stage Post: how many of the instr's inputs are the node's own inputs (they come last)
  std::vector<FactPattern> expected;  // barriers: facts of all outputs at capture
};

/// The gradient waiting at flat node input `input` became `value` (undefined: it was consumed).
struct BufferEvent {
  uint32_t input;
  ValueId value;
};

/// Where capture began: at the start, or after a barrier whose results did not match an earlier capture.
enum class Stage : uint8_t { NodeStart, AfterTensorPre, AfterPre, AfterCall, AfterPost };

class HINDCAST_API BackwardGraph final : public Graph {
 public:
  BackwardGraph() = default;
  BackwardGraph(const BackwardGraph&) = default;

  std::vector<Event> events;  // by Instr::event
  std::vector<BufferEvent> buffer_events;
  uint32_t tensor_count = 0;  // of `inputs`: one per collected tensor slot; then the gradients given at the start, in the order of Resume
  std::vector<uint32_t> owners;    // by collected tensor: the node that saved it, as Instr::origin
  std::vector<uint32_t> programs;  // nodes whose ahead-of-time compiled backward is part of this one
  uint32_t first_call = 0;
  Stage stage = Stage::NodeStart;

  const Event& event_of(const Instr& instr) const { return events[instr.event]; }
  bool is(const Instr& instr, EventKind kind) const { return instr.kind == InstrKind::Event && event_of(instr).kind == kind; }
  std::span<const ValueId> tensor_inputs() const { return std::span(inputs).first(tensor_count); }
  std::span<const ValueId> resume_inputs() const { return std::span(inputs).subspan(tensor_count); }

  /// Called once everything is recorded. If user code runs, nodes may change after they are collected, and are checked again before they
  /// run: the first node of each segment checks the whole segment, since the segment's kernels run ahead (EventOrder::Leave).
  void mark_bailout_points();
  /// For the NodeStart or barrier at `instr`: the end of the range of nodes, from its own, that must be as they were collected. For the
  /// first node of a segment, and after a hook or an opaque node, that is the whole segment, whose kernels run together; 0: no node is
  /// checked.
  uint32_t end_of_recheck(uint32_t instr) const;

  std::string print() const override;
  std::string dot() const override;
  std::vector<std::string> value_names() const override;
  size_t footprint(const Graph* beside = nullptr) const override;
  std::vector<ExprId> expressions() const override;
  std::shared_ptr<Graph> copy() const override { return std::make_shared<BackwardGraph>(*this); }
  void redirect(const std::function<ValueId(ValueId)>& now) override;
};

}  // namespace hindcast::capture
