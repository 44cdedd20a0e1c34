#pragma once
// Records what a trace does besides the ATen calls of formulas: nodes, what crosses a barrier, and which gradients are waiting. Does
// nothing if the trace is not recorded, except that observers see the tensors.

#include "capture/backward/node_policy.h"
#include "capture/backward/trace.h"
#include "capture/backward/traced.h"
#include "capture/recorder/recorder.h"

namespace hindcast::capture {

class TraceWriter {
 public:
  explicit TraceWriter(const TraceRequest& request);

  bool recording() const { return request_.record; }
  BackwardGraph& graph() { return *graph_; }
  SymbolTable& symbols() { return *graph_->symbols; }
  Recorder& recorder() { return recorder_; }
  /// The graph; nullptr if nothing was recorded.
  std::shared_ptr<BackwardGraph> share() const { return recording() ? graph_ : nullptr; }
  /// Frees the graph's spare capacity.
  std::shared_ptr<BackwardGraph> finish();

  /// Instrs from here on belong to node `call`.
  void begin_node(uint32_t call) {
    call_ = call;
    is_released_ = false;
  }
  uint32_t call() const { return call_; }

  // Only while recording.
  Instr& add_instr(InstrKind kind);
  Event& add_event(EventKind kind, ValueIds inputs = {});
  /// Records the release of the node's saved tensors, unless that was done.
  void release_node();
  Event& add_accumulate(ValueId gradient, bool has_post_hooks);

  /// User hooks at `stage` turned `list` into `results`. A post-hook also reads the node's inputs: `kept`.
  void add_hooks(HookStage stage, const std::vector<Traced>& list, const std::vector<Traced>& kept,
                 const torch::autograd::variable_list& results);
  /// Adds one result of the last barrier; returns its value.
  ValueId add_boundary_result(const at::Tensor& result, std::vector<ExprId> sizes);

  /// The gradient that waits at flat node input `input` became `value`; undefined: it was consumed.
  void note_buffer(uint32_t input, ValueId value);

  // For a replay that checks the graph, and for observers.
  void keep_input(ValueId value, const at::Tensor& real);
  void keep_result(const Traced& item);
  void see_gradient(const Traced& gradient);

 private:
  void add_expected(const at::Tensor& result, const std::vector<ExprId>& sizes);

  const TraceRequest& request_;
  std::shared_ptr<BackwardGraph> graph_ = std::make_shared<BackwardGraph>();
  CallNodeAsItself policy_;
  Recorder recorder_;
  uint32_t call_ = 0;
  bool is_released_ = false;  // whether the saved tensors of node call_ are released
};

}  // namespace hindcast::capture
