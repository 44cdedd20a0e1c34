#pragma once
// One captured backward: a program, and between its ATen calls, in the stock engine's order, all else that the engine does.

#include "capture/graph/graph.h"

#include <span>

namespace hindcast::capture {

enum class EventKind : uint8_t {
  NodeStart,   // the steps of a node follow; reads what waited at the node's inputs
  Hook,        // user hooks of one node and stage; a barrier
  CallNode,    // an autograd node called as itself; a barrier
  Accumulate,  // AccumulateGrad: inputs[0] into the leaf's .grad; a barrier when the leaf has post-accumulate hooks
  Capture,     // inputs[0] becomes a result of grad()
  Release,     // the node's saved tensors are given back (unless retain_graph)
};

enum class HookStage : uint8_t { TensorPre, Pre, Post };

/// What one fact of a barrier's results was at capture: a number, or the value of a dynamic size.
struct FactPattern {
  int64_t value = 0;
  std::optional<ExprId> expr;
};

/// Of the node that is Instr::origin of its instr.
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

/// Where capture began: at the start, or behind a barrier whose results were not those of an earlier capture.
enum class Stage : uint8_t { NodeStart, AfterTensorPre, AfterPre, AfterCall, AfterPost };

class HINDCAST_API BackwardGraph final : public Graph {
 public:
  BackwardGraph() = default;
  BackwardGraph(const BackwardGraph&) = default;

  std::vector<Event> events;  // by Instr::event
  std::vector<BufferEvent> buffer_events;
  uint32_t tensor_count = 0;  // of `inputs`: one per collected tensor slot; then the gradients given at the start, in the order of Resume
  std::vector<uint32_t> owners;    // by collected tensor: the node that saved it, as Instr::origin
  std::vector<uint32_t> programs;  // nodes whose backward was made ahead of time and is a part of this one
  uint32_t first_call = 0;
  Stage stage = Stage::NodeStart;

  const Event& event_of(const Instr& instr) const { return events[instr.event]; }
  bool is(const Instr& instr, EventKind kind) const { return instr.kind == InstrKind::Event && event_of(instr).kind == kind; }
  std::span<const ValueId> tensor_inputs() const { return std::span(inputs).first(tensor_count); }
  std::span<const ValueId> resume_inputs() const { return std::span(inputs).subspan(tensor_count); }

  /// Once all is recorded. Where user code ran, nodes may have changed since they were collected, and are looked at again before their
  /// turn: the first one of each segment for all of it, since the segment's kernels run ahead (EventOrder::Leave).
  void mark_where_it_may_be_left();
  /// For the NodeStart or barrier at `instr`: nodes from its own up to this one must be as they were collected. Behind the first node
  /// of a segment, and behind a hook or a called node, that is all of the segment, whose kernels run together; 0: none are looked at.
  uint32_t looks_until(uint32_t instr) const;

  std::string print() const override;
  std::string dot() const override;
  std::vector<std::string> value_names() const override;
  size_t footprint(const Graph* beside = nullptr) const override;
  std::vector<ExprId> expressions() const override;
  std::shared_ptr<Graph> copy() const override { return std::make_shared<BackwardGraph>(*this); }
  void redirect(const std::function<ValueId(ValueId)>& now) override;
};

}  // namespace hindcast::capture
