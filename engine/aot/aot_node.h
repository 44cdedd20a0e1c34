#pragma once
// What autograd sees of a compiled function: one node for all of it.

#include "capture/backward/program_node.h"
#include "engine/leaving.h"
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
  std::atomic<uint64_t> calls = 0, hits = 0, traces = 0, eager = 0, backwards = 0, numbers_differed = 0;
  std::atomic<uint64_t> launches = 0;  // of recordings of programs
};

/// What every part of a call needs.
struct AotContext {
  AotOptions options;
  AotCounts counts;
  Leaving leaving;
  std::atomic<uint32_t> kept_tensors = 0;  // calls whose trace ended since the function kept a tensor
  std::atomic<bool> draws_atens = false;   // kernels draw no random numbers of their own: see drawn_again.h
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
  /// Makes the programs of a traced call now, with gradients of zeros: its backward may never come. Not where that would run the user's code.
  void learn_without_backward();
  /// The call ran a program. `outputs`: the forward program's; `results`: the tensors that this node made, where they have their history.
  /// `primals` are as they were in the call.
  void set_saved(std::shared_ptr<const Halves> halves, const std::vector<at::Tensor>& primals, const std::vector<at::Tensor>& outputs,
                 const std::vector<at::Tensor>& results);
  /// Tells AotContext::leaving what its backward takes.
  void time_backward() { is_timed_ = true; }
  /// Its results may be differentiated one after the other: FunctionCall::has_separate_results.
  void keep_for_other_results() { keeps_for_others_ = num_inputs() > 1; }
  /// When this node's results have their history. `devices`: of the accelerator, where the call ran.
  void note_streams(c10::ArrayRef<c10::Device> devices);

  torch::autograd::variable_list apply(torch::autograd::variable_list&& tangents) override;
  void release_variables() override;
  std::string name() const override { return "AotFunctionBackward"; }

  const capture::NodeProgram* program() const override;
  bool has_several_streams() const override { return started_on_.has_value(); }
  std::optional<capture::RecomputedBackward> recomputed_backward() override;
  std::span<const torch::autograd::SavedVariable> saved() const override { return saved_; }
  std::span<const int64_t> integers() const override { return bindings_.ints; }
  std::optional<torch::autograd::variable_list> run_as_captured(const torch::autograd::variable_list& gradients) override;

 private:
  using variable_list = torch::autograd::variable_list;

  variable_list run(const variable_list& tangents);
  variable_list run_timed(const variable_list& tangents);
  void end(std::unique_ptr<capture::FunctionTrace> trace);
  variable_list backward_of_trace(const variable_list& tangents, bool is_usual);
  variable_list backward_on_stand_ins(const variable_list& tangents, bool is_usual);
  variable_list users_backward(const variable_list& tangents);  // may run the user's code
  void learn(const variable_list& tangents, bool for_this_call, bool with_graph);
  struct ForSecondOrder {
    std::optional<capture::Joint> joint;  // recorded in grad mode; nullopt: the joint program for first derivatives serves
    const char* why_not = nullptr;        // SecondOrder::why_not
  };
  ForSecondOrder learn_second_order(const variable_list& tangents, bool is_asked_for);
  bool are_as_given(const std::shared_ptr<const Halves>& halves) const;
  bool take_over();
  bool has_symbols_of_capture() const;
  struct Recorded {
    capture::Joint joint;
    variable_list tangents;
  };
  void make_programs(const std::vector<Recorded>& recorded, const ForSecondOrder& for_second_order, bool for_this_call);
  variable_list backward_of_program(const variable_list& tangents);
  variable_list backward_by_ops(const variable_list& tangents);
  std::shared_ptr<const Halves> halves_for_results(const variable_list& tangents);
  // differentiable_backward.cpp
  const char* why_not_differentiated(const Halves& whole) const;
  void leave_to_the_function(const std::string& why_not) const;
  std::optional<std::string> find_changed_argument() const;
  capture::RecomputedBackward backward_of_arguments();
  variable_list differentiable_backward(const variable_list& tangents);
  variable_list with_error(variable_list gradients, const std::string& why_not) const;
  variable_list without_derivatives(const variable_list& tangents, const std::string& why_not);
  std::optional<variable_list> taken_by(const Halves& halves, const variable_list& tangents) const;
  std::vector<at::Tensor> unpack_saved();
  variable_list run_program(const Halves& halves, std::vector<at::Tensor> inputs, Program::Way way);
  variable_list of_edges(variable_list by_primal) const;

  const std::shared_ptr<AotContext> context_;
  const std::shared_ptr<Specialisation> of_;
  const capture::Bindings bindings_;
  std::unique_ptr<capture::FunctionTrace> live_;
  std::shared_ptr<const Halves> halves_;
  struct KeptPrimal {
    uint32_t number;
    at::Tensor tensor;
    uint32_t version;
  };
  std::vector<torch::autograd::SavedVariable> saved_;  // by Halves::saved
  std::vector<KeptPrimal> for_second_order_;           // of SecondOrder::primals, those that are not among Halves::saved
  bool has_learned_ = false, has_failed_ = false, is_released_ = false, keeps_for_others_ = false, is_timed_ = false;
  std::optional<hooks::StartStreams> started_on_;  // what the call ran on, where that is more than this node's own stream
};

}  // namespace hindcast::engine
