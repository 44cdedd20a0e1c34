#pragma once
// What a trace records besides the ATen calls of formulas: nodes, what crosses a barrier, and which gradients wait meanwhile.
// Where nothing is recorded all of this does nothing, and observers see the tensors all the same.

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
  /// The graph; null where nothing was recorded.
  std::shared_ptr<BackwardGraph> share() const { return recording() ? graph_ : nullptr; }
  /// Gives back the memory that was for more.
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
  /// What the node saved is given back, if it was not yet.
  void release_node();
  Event& add_accumulate(ValueId gradient, bool has_post_hooks);

  /// User hooks at `stage` turned `list` into `results`. A post-hook also reads what the node was given: `kept`.
  void add_hooks(HookStage stage, const std::vector<Traced>& list, const std::vector<Traced>& kept,
                 const torch::autograd::variable_list& results);
  /// One result of the barrier that was added last; its value.
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
  bool is_released_ = false;  // its node is
};

}  // namespace hindcast::capture
