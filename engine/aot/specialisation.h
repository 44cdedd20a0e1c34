#pragma once
// One specialisation of a function: the inputs it is valid for, its results, and, after its first backward, its programs.

#include "capture/function/function_trace.h"
#include "engine/aot/calls_in_vain.h"
#include "engine/aot/input_facts.h"
#include "engine/aot/outside_tensor.h"
#include "engine/aot/program_pairs.h"
#include "engine/aot/proved_sizes.h"
#include "engine/aot/traced_function.h"
#include "hindcast/detail/aot_core.h"

#include <atomic>
#include <memory>
#include <vector>

namespace hindcast::engine {

class Family;

class Specialisation : public TracedFunction {
 public:
  /// From a trace.
  Specialisation(InputFacts facts, DynamicRow dynamic, const capture::FunctionTrace& trace, detail::FunctionOutput output,
                 const detail::HasOwner& has_owner);
  explicit Specialisation(InputFacts facts);
  /// A copy of `other` for all sizes that the relations of `symbols` allow.
  Specialisation(const Specialisation& other, std::shared_ptr<capture::SymbolTable> symbols, std::vector<capture::Returned> returned,
                 bool infers);

  /// True if it is valid for a call with these facts; then fills `bindings`.
  bool matches(const capture::Facts& row, capture::Bindings& bindings) const;
  /// True if these inputs have the storage offsets of the traced ones, or if offsets do not matter.
  bool have_same_offsets(const std::vector<at::Tensor>& inputs) const;
  const capture::Facts& row() const { return row_; }
  bool is_dynamic() const { return !dynamic_.symbols.empty(); }
  /// True if it has symbols, but also numbers that may be sizes: it is valid only for the sizes at capture.
  bool is_exact() const { return is_exact_.load(std::memory_order_acquire); }
  void make_exact() { is_exact_.store(true, std::memory_order_release); }
  /// The values of its symbols in a call with these facts; nullopt if the facts differ in more than sizes.
  std::optional<std::vector<int64_t>> values_of_symbols(const capture::Facts& row) const;

  /// For a fit: a trace at these sizes gave its program. It becomes valid for them and, if sizes are inferred, for those between.
  void prove(const std::vector<int64_t>& values) { proved_->add(values); }
  std::vector<int64_t> symbols_at_capture() const { return dynamic_.int_hints; }

  /// Later calls run the function eagerly, unless it has been dropped.
  void give_up() {
    State expected = State::InUse;
    state_.compare_exchange_strong(expected, State::Eager);
  }
  /// Likewise at all other sizes.
  void give_up_at_all_sizes();
  bool is_eager() const { return state_.load(std::memory_order_acquire) == State::Eager; }
  /// No later call may find it.
  void drop() { state_.store(State::Dropped, std::memory_order_release); }
  bool is_dropped() const { return state_.load(std::memory_order_acquire) == State::Dropped; }
  /// What its checkpoints recompute in the backward could be recorded.
  void note_recorded_checkpoints() { has_recorded_checkpoints_.store(true, std::memory_order_relaxed); }
  bool has_recorded_checkpoints() const { return has_recorded_checkpoints_.load(std::memory_order_relaxed); }
  /// Checks whether the function has kept tensors that it made, and makes plain tensors of them. `made`: the stand-ins of a trace that has
  /// been destroyed.
  void look_for_escapes(const capture::Recorder::WeakStandIns& made);
  void set_family(std::weak_ptr<Family> family) { family_ = std::move(family); }
  std::shared_ptr<Family> family() const { return family_.lock(); }

  /// True if it waits for its first backward, which completes the programs.
  bool waits() const { return !is_eager() && programs_.next() == nullptr; }
  ProgramPairs& programs() { return programs_; }
  const ProgramPairs& programs() const { return programs_; }
  /// True if `trace` gave the same results.
  bool is_like(const capture::FunctionTrace& trace) const;

  /// Sizes of inputs as expressions, for a trace with this specialisation's symbols, which now have these values.
  capture::FunctionTrace::SizesOf sizes_of(const capture::Bindings& now) const;
  /// Calls that read other scalars, as with item(), than the traced ones.
  CallsInVain& with_other_numbers() { return with_other_numbers_; }
  /// Returns true the first few times only: if programs for other gradients keep coming, they are not worth the measurements.
  bool may_choose_layout() { return layouts_chosen_.fetch_add(1) < 4; }
  /// True if a call without a program is worth a trace: exponentially fewer are, as long as no backward comes.
  bool is_worth_a_trace() {
    const uint32_t call = calls_without_program_.fetch_add(1) + 1;
    return (call & (call - 1)) == 0;
  }

  /// A traced call had no backward, as in an evaluation with grad mode on. The next trace completes the programs at once.
  void had_no_backward() { learns_at_once_.store(true, std::memory_order_relaxed); }
  bool learns_at_once() const { return learns_at_once_.load(std::memory_order_relaxed); }

  const std::vector<capture::Returned>& returned() const { return returned_; }
  /// The tensors that the function reads from outside; undefined if freed.
  std::vector<at::Tensor> find_lifted() const;
  /// True if the gradients that the function takes itself depend on the caller's graph in a call with `inputs` (dependent_inputs.h). Its
  /// programs are for other calls.
  bool needs_callers_graph(const std::vector<at::Tensor>& inputs) const;
  /// Inputs come first among primals.
  bool is_input(size_t primal) const { return primal < first_.size(); }
  /// Its symbols for a trace in which the backed ones have these values.
  DynamicRow dynamic_at(const capture::Bindings& now) const;
  bool is_fit() const { return proved_ != nullptr; }
  /// True if both read the same outside tensors and return the same non-tensor values: only then can one program serve both.
  bool has_same_outside_tensors(const Specialisation& other) const;
  /// Applies the view ops to the tensor, with this thread's autograd state.
  at::Tensor view(at::Tensor of, const std::vector<capture::ViewStep>& views, const capture::Bindings& bindings) const;

 private:
  enum class State : uint8_t { InUse, Eager, Dropped };
  bool bind_symbols(const capture::Facts& row, capture::Bindings& bindings) const;

  const capture::Facts row_;
  const std::vector<uint32_t> first_;
  const DynamicRow dynamic_;
  std::shared_ptr<capture::SymbolTable> symbols_;  // of results' views
  capture::Evaluator evaluator_;
  std::vector<capture::Returned> returned_;
  std::vector<OutsideTensor> lifted_;
  capture::Facts lifted_row_;
  std::vector<int64_t> offsets_;  // of inputs, then of outside tensors; empty if they do not matter
  std::atomic<State> state_ = State::InUse;
  std::atomic<bool> is_exact_ = false, learns_at_once_ = false, has_recorded_checkpoints_ = false;
  std::atomic<uint32_t> calls_without_program_ = 0, layouts_chosen_ = 0;
  CallsInVain with_other_numbers_;
  std::weak_ptr<Family> family_;
  ProgramPairs programs_;
  std::unique_ptr<ProvedSizes> proved_;  // nullptr unless this is a fit
};

}  // namespace hindcast::engine
