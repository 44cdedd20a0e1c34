#pragma once
// What autograd sees of a compiled function: one node for all of it.

#include "capture/backward/program_node.h"
#include "engine/aot/specialisation.h"
#include "hooks/start_streams.h"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <atomic>
#include <memory>
#include <optional>
#include <vector>

namespace hindcast::engine {

/// Counts of one compiled function.
struct AotCounts {
  std::atomic<uint64_t> calls = 0, hits = 0, traces = 0, eager = 0, backwards = 0, run_again = 0, numbers_differed = 0;
};

/// What every part of a call needs.
struct AotContext {
  AotOptions options;
  AotCounts counts;
  std::atomic<bool> draws_atens = false;  // kernels draw no random numbers of their own: see drawn_again.h
};

/// What programs are made of.
capture::Joint joint_of(const capture::FunctionTrace& trace, const AotContext& context);

class AotNode final : public capture::ProgramNode {
 public:
  AotNode(std::shared_ptr<AotContext> context, std::shared_ptr<Specialisation> of, capture::Bindings bindings)
      : context_(std::move(context)), of_(std::move(of)), bindings_(std::move(bindings)) {}

  ~AotNode() override;
  AotNode(const AotNode&) = delete;
  AotNode& operator=(const AotNode&) = delete;

  /// The call was traced: its backward is run on the stand-ins, and makes the programs known.
  void set_live(std::unique_ptr<capture::FunctionTrace> trace) { live_ = std::move(trace); }
  /// The call is over: what is written to from here on may be wanted by the backward.
  void note_versions() { versions_ = live_->versions(); }
  /// The call ran a program. `outputs`: the forward program's; `results`: the tensors that this node made, where they have their history.
  void set_saved(std::shared_ptr<const Halves> halves, const std::vector<at::Tensor>& primals, const std::vector<at::Tensor>& outputs,
                 const std::vector<at::Tensor>& results);
  /// When this node's results have their history. `devices`: of the accelerator, where the call ran.
  void note_streams(c10::ArrayRef<c10::Device> devices);
  /// Inputs of the function, for it to run once more.
  void keep_inputs(const std::vector<at::Tensor>& inputs);

  torch::autograd::variable_list apply(torch::autograd::variable_list&& tangents) override;
  void release_variables() override;
  std::string name() const override { return "AotFunctionBackward"; }

  const capture::NodeProgram* program() const override;
  std::span<const torch::autograd::SavedVariable> saved() const override { return saved_; }
  std::span<const int64_t> integers() const override { return bindings_.ints; }
  std::optional<torch::autograd::variable_list> run_as_captured(const torch::autograd::variable_list& gradients) override;

 private:
  using variable_list = torch::autograd::variable_list;

  variable_list run(variable_list& tangents);
  void complete(variable_list& tangents) const;
  void end(std::unique_ptr<capture::FunctionTrace> trace);
  void check_versions() const;
  variable_list backward_of_trace(const variable_list& tangents);
  std::optional<variable_list> backward_of_program(const variable_list& tangents, Program::Way way);
  variable_list backward_of_another_trace(const variable_list& tangents);
  variable_list run_as_it_is(const variable_list& tangents, bool create_graph);
  variable_list run_first_call_again(const variable_list& tangents);
  variable_list gradients_of(const std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& given, const variable_list& ends,
                             const variable_list& tangents, bool create_graph) const;
  void learn(const capture::FunctionTrace& trace, const variable_list& tangents, std::vector<at::Tensor> inputs);
  std::vector<at::Tensor> unpack_inputs();
  variable_list of_edges(variable_list by_primal) const;

  const std::shared_ptr<AotContext> context_;
  const std::shared_ptr<Specialisation> of_;
  const capture::Bindings bindings_;
  std::unique_ptr<capture::FunctionTrace> live_;
  std::vector<uint32_t> versions_;  // of live_
  std::shared_ptr<const Halves> halves_;
  std::vector<torch::autograd::SavedVariable> saved_;   // by Halves::saved
  std::vector<torch::autograd::SavedVariable> inputs_;  // where the function can run again
  bool has_inputs_ = false, is_released_ = false;
  std::optional<hooks::StartStreams> started_on_;  // what the call ran on, where that is more than this node's own stream
};

/// While alive, backwards of this thread run on LibTorch's engine.
class OnStockEngine {
 public:
  OnStockEngine();
  ~OnStockEngine();
  OnStockEngine(const OnStockEngine&) = delete;
  OnStockEngine& operator=(const OnStockEngine&) = delete;

 private:
  const Options* former_;
};

}  // namespace hindcast::engine
