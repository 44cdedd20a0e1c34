#pragma once
// The autograd node of a compiled function: one node for the whole function.

#include "capture/backward/program_node.h"
#include "engine/aot/specialisation.h"
#include "hindcast/detail/back_off_policy.h"
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
  std::atomic<uint64_t> launches = 0;  // of the programs' CUDA graphs
};

/// Per-function state that every part of a call needs.
struct AotContext {
  AotOptions options;
  AotCounts counts;
  detail::BackOffPolicy back_off;
  std::atomic<uint32_t> kept_tensors = 0;  // traces that ended because the function kept a tensor
  // A traced call's backward also began at a tensor that the function had kept, and ran user code twice: the function is not traced again.
  std::atomic<bool> keeps_tensors_in_losses = false;
  std::atomic<bool> has_costly_lookup = false;
  std::atomic<bool> draws_atens = false;  // random numbers come from ATen, not from kernels: see drawn_again.h
};

/// The joint program of a trace, from which programs are compiled.
capture::Joint joint_of(const capture::FunctionTrace& trace, const AotContext& context);

class AotNode final : public capture::ProgramNode {
 public:
  AotNode(std::shared_ptr<AotContext> context, std::shared_ptr<Specialisation> of, capture::Bindings bindings)
      : context_(std::move(context)), specialisation_(std::move(of)), bindings_(std::move(bindings)) {}

  ~AotNode() override;
  AotNode(const AotNode&) = delete;
  AotNode& operator=(const AotNode&) = delete;

  /// For a call that was traced: its backward runs on the stand-ins, and completes the programs.
  void set_live(std::unique_ptr<capture::FunctionTrace> trace) { live_ = std::move(trace); }
  /// Completes the programs of a traced call now, with zero gradients, since its backward may never come. Does nothing if that would run
  /// the user's code. `by_groups`: for nodes of the function's history groups.
  void learn_without_backward(bool by_groups = false);
  /// For a call that ran a program. `outputs`: the forward program's; `results`: the tensors with this node as their history; `primals`: as
  /// they were in the call.
  void set_saved(std::shared_ptr<const ProgramPair> pair, const std::vector<at::Tensor>& primals, const std::vector<at::Tensor>& outputs,
                 const std::vector<at::Tensor>& results);
  /// Reports the time of this node's backward to AotContext::back_off.
  void time_backward() { is_timed_ = true; }
  /// The results may be differentiated separately: FunctionCall::has_separate_results. `group`: this node is for them alone.
  void keep_for_other_results(const capture::FunctionTrace::HistoryGroup* group = nullptr);
  /// Call it once the results have this node as their history. `devices`: the accelerator devices on which the call ran.
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

  static bool are_plain(const variable_list& tensors);
  variable_list run(const variable_list& tangents);
  variable_list run_timed(const variable_list& tangents);
  void end(std::unique_ptr<capture::FunctionTrace> trace);
  variable_list of_edges(variable_list by_primal) const;
  variable_list backward_of_program(const variable_list& tangents);
  variable_list backward_by_ops(const variable_list& tangents);
  std::vector<bool> wanted(size_t primals) const;  // ProgramPair::wants, of this backward
  std::shared_ptr<const ProgramPair> pair_for(const variable_list& tangents, const std::vector<bool>& wants);
  std::optional<variable_list> taken_by(const ProgramPair& pair, const variable_list& tangents) const;
  std::vector<at::Tensor> unpack_saved();
  variable_list run_program(const ProgramPair& pair, std::vector<at::Tensor> inputs, Program::Way way);

  // learn_backward.cpp
  variable_list backward_of_trace(const variable_list& tangents, bool is_usual);
  bool may_be_recorded(const variable_list& tangents, const std::vector<bool>& wants);
  variable_list backward_on_stand_ins(const variable_list& tangents, bool is_usual);
  bool gives_up_a_checkpoint() const;
  void give_up(const std::string& why) const;
  variable_list checkpoints_backward(const variable_list& given);
  variable_list recorded_backward(const variable_list& given, bool all_flow);
  variable_list unusual_backward(const variable_list& tangents, bool create_graph);
  bool learn_with_zeros(bool with_graph);
  bool learn_for_graph();                                       // without the user's code; false: the backward runs on the stand-ins
  variable_list users_backward(const variable_list& tangents);  // may run the user's code
  variable_list with_zeros(const variable_list& tangents) const;
  std::optional<variable_list> backward_for_all(const variable_list& whole, const std::vector<bool>& flows);
  void learn(const variable_list& tangents, bool for_this_call, bool with_graph);
  void learn_for_all(const variable_list& whole, const variable_list& tangents, bool for_this_call);
  struct ForSecondOrder {
    std::optional<capture::Joint> joint;  // traced in grad mode; nullopt: use the joint program for first derivatives
    const char* why_not = nullptr;        // SecondOrder::why_not
    bool is_asked_for = false;
  };
  ForSecondOrder learn_second_order(const variable_list& tangents, bool is_asked_for);
  struct Recorded {
    capture::Joint joint;
    variable_list tangents;
  };
  void make_programs(const std::vector<Recorded>& recorded, const ForSecondOrder& for_second_order, bool for_this_call,
                     const variable_list& tangents = {});
  void add_backwards_of_groups(std::vector<std::shared_ptr<const ProgramPair>>& made, PairRequest request) const;
  bool has_symbols_of_capture() const;
  bool are_as_given(const std::shared_ptr<const ProgramPair>& pair) const;
  bool take_over();

  // differentiable_backward.cpp
  const char* why_not_differentiated(const ProgramPair& whole) const;
  void leave_to_the_function(const std::string& why_not) const;
  std::optional<std::string> find_changed_argument() const;
  capture::RecomputedBackward backward_of_arguments();
  variable_list differentiable_backward(const variable_list& tangents);
  variable_list with_error(variable_list gradients, const std::string& why_not) const;
  variable_list without_derivatives(const variable_list& tangents, const std::string& why_not);

  const std::shared_ptr<AotContext> context_;
  const std::shared_ptr<Specialisation> specialisation_;
  const capture::Bindings bindings_;
  std::unique_ptr<capture::FunctionTrace> live_;
  std::shared_ptr<const ProgramPair> pair_;
  struct KeptPrimal {
    uint32_t number;
    at::Tensor tensor;
    uint32_t version;
  };
  std::vector<torch::autograd::SavedVariable> saved_;  // by ProgramPair::saved
  std::vector<KeptPrimal> for_second_order_;           // those of SecondOrder::primals that are not among ProgramPair::saved
  bool has_learned_ = false, has_failed_ = false, is_released_ = false, keeps_for_others_ = false, is_timed_ = false;
  bool has_separate_results_ = false, learns_by_groups_ = false, is_for_group_ = false;
  const capture::FunctionTrace::HistoryGroup* group_ = nullptr;  // of specialisation_
  std::optional<hooks::StartStreams> started_on_;                // the call's streams, if there were others than this node's own
};

}  // namespace hindcast::engine
