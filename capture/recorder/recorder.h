#pragma once
// Sees every ATen call of a node's formula, below autograd, and writes it into the graph.
//
// How: a boxed fallback on a dispatch key that LibTorch leaves free. TracingTensors carry the key and the thread includes
// it (so that factories are seen). Composite ops are let through to decompose; every other op runs for real on the real
// tensors and becomes one instr.
//
// Formulas write in place and through views. A write becomes a Mutate instr (copy, then write the copy) that makes a new
// value of the base; views taken before derive themselves again. A write to anything that the node did not make itself,
// an op that returns numbers or draws random ones, or whose result size depends on data, makes the node untraceable: it is
// stopped before that op runs, its instrs are dropped, and it is called as itself.

#include "capture/graph/graph.h"
#include "capture/recorder/tracing_tensor.h"

namespace hindcast::capture {

/// True if the recorder has a dispatch key of its own in this process. The first call installs the fallback.
bool recorder_available();

class Recorder {
 public:
  explicit Recorder(Graph& graph) : graph_(graph) {}

  /// While alive, ATen calls of this thread are recorded.
  class Scope {
   public:
    explicit Scope(Recorder& recorder);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    struct Guards;
    std::unique_ptr<Guards> guards_;
    Recorder* previous_;
  };

  static Recorder* current();

  /// A stand-in for a real tensor that is value `id` of the graph. Not `fresh`: the formula may not write to it.
  at::Tensor stand_in(at::Tensor real, ValueId id);
  /// A new value of the graph with the metadata of `real`; sizes are constants unless given.
  ValueId new_value(const at::Tensor& real, std::vector<ExprId> sizes);
  ValueId new_value(const at::Tensor& real);
  ValueId undefined_value();

  /// The value of a stand-in now (derived again when its base was written), undefined for an undefined tensor.
  /// A real tensor that is no stand-in becomes a constant when it is 0-dim, else makes the node untraceable.
  ValueId value_of(const at::Tensor& tensor);

  void begin_node(uint32_t call);
  /// Drops what was recorded since begin_node.
  void drop_node();
  void mark_untraceable(std::string reason);
  /// The formula is a user's, who may reach tensors that no node collected and ask for storage offsets.
  void set_user_formula(bool is_users) { user_formula_ = is_users; }
  const std::optional<std::string>& untraceable() const { return untraceable_; }

  void record(const c10::OperatorHandle& op, torch::jit::Stack* stack);
  Graph& graph() { return graph_; }

 private:
  struct Written {
    TracingTensor* target = nullptr;
    uint32_t arg = 0;
  };
  Arg make_arg(const c10::IValue& value);
  void record_write(const c10::OperatorHandle& op, std::vector<Arg> args, Written written);
  at::Tensor wrap_output(at::Tensor real, ValueId id, const c10::OperatorHandle& op, const std::vector<Arg>& args,
                         const std::vector<c10::IValue>& inputs, uint32_t output);
  std::vector<std::vector<ExprId>> output_sizes(const c10::OperatorHandle& op, const std::vector<c10::IValue>& inputs,
                                                const std::vector<at::Tensor>& outputs);

  Graph& graph_;
  uint32_t call_ = 0;
  size_t first_instr_ = 0;
  std::optional<std::string> untraceable_;
  bool user_formula_ = false;
};

}  // namespace hindcast::capture
