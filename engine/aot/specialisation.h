#pragma once
// One specialisation of a function: the inputs it is valid for, its results, and, after its first backward, its programs.

#include "base/fork.h"
#include "capture/function/function_trace.h"
#include "engine/aot/calls_in_vain.h"
#include "engine/aot/outside_tensor.h"
#include "engine/aot/program_pair.h"
#include "engine/cache/dynamic_rule.h"
#include "hindcast/detail/aot_core.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

namespace hindcast::engine {

/// The facts about one call's inputs that guards check.
struct InputFacts {
  explicit InputFacts(const std::vector<at::Tensor>& inputs, const std::vector<bool>& is_static = {}, bool with_kinds = false);
  capture::Facts row;
  std::vector<capture::FactKind> kinds;  // only if `with_kinds`; sizes that must stay static are marked as strides
  std::vector<uint32_t> first;           // by input: the index of its first fact
};

/// Sizes as expressions: a number if the fact is static, a symbol if it is dynamic.
capture::FunctionTrace::SizesOf sizes_of_inputs(const capture::Facts& row, const std::vector<uint32_t>& first, const DynamicRow& dynamic);

class Family;

/// The values of a fit's symbols at which it was compared with a trace.
class ProvedSizes {
 public:
  explicit ProvedSizes(bool infers) : infers_(infers) {}
  void add(const std::vector<int64_t>& values);
  bool has(const std::vector<int64_t>& values) const;

 private:
  const bool infers_;
  std::set<std::vector<int64_t>> each_;               // empty if sizes are inferred
  std::vector<std::pair<int64_t, int64_t>> between_;  // by symbol, if sizes are inferred
};

class Specialisation {
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
  void prove(const std::vector<int64_t>& values);
  std::vector<int64_t> symbols_at_capture() const { return dynamic_.int_hints; }

  /// Later calls run the function eagerly, unless it has been dropped.
  void give_up() {
    State expected = State::InUse;
    state_.compare_exchange_strong(expected, State::Eager);
  }
  bool is_eager() const { return state_.load(std::memory_order_acquire) == State::Eager; }
  /// No later call may find it.
  void drop() { state_.store(State::Dropped, std::memory_order_release); }
  bool is_dropped() const { return state_.load(std::memory_order_acquire) == State::Dropped; }
  /// Checks whether the function has kept a tensor that it made. `made`: the stand-ins of a trace that has been destroyed.
  void look_for_escapes(const capture::Recorder::WeakStandIns& made);
  void set_family(std::weak_ptr<Family> family) { family_ = std::move(family); }
  std::shared_ptr<Family> family() const { return family_.lock(); }

  /// True if it waits for its first backward, which completes the programs.
  bool waits() const { return !is_eager() && pair() == nullptr; }
  /// The programs for the next call; nullptr before the first backward.
  std::shared_ptr<const ProgramPair> pair() const;
  std::vector<std::shared_ptr<const ProgramPair>> all_pairs() const;
  /// The programs for gradients of all results; nullptr before the first backward.
  std::shared_ptr<const ProgramPair> whole() const;
  /// The programs with the same forward and a backward for gradients like these; nullptr if these have not been compiled.
  std::shared_ptr<const ProgramPair> pair_for(const std::vector<capture::Facts>& tangents, const ProgramPair& forward) const;
  /// Adds programs that share one forward; the last one is for the next call. All are added at once, so that no call finds a forward
  /// without its backward.
  void add(std::vector<std::shared_ptr<const ProgramPair>> made);
  /// A call tried other programs before these. If this happens twice in a row, these become the next call's first.
  void note_miss(const std::shared_ptr<const ProgramPair>& pair);
  /// Replaces all programs by better ones. Nodes that hold the former ones continue to use them.
  void replace(const ProgramPair& former, std::shared_ptr<const ProgramPair> pair);
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

  const std::vector<capture::Result>& results() const { return results_; }
  const std::vector<capture::Returned>& returned() const { return returned_; }
  const std::vector<capture::AskedNumber>& numbers() const { return numbers_; }
  /// The tensors that the function reads from outside; undefined if freed.
  std::vector<at::Tensor> find_lifted() const;
  bool needs_gradient(size_t primal) const { return needs_gradient_[primal]; }
  /// Whether the result is an argument that the function wrote to where autograd did not follow, as in no_grad mode.
  bool is_written_without_history(size_t result) const {
    return result < results_.size() && results_[result].written && !results_[result].is_differentiable;
  }
  bool is_written(size_t primal) const {
    return std::any_of(results_.begin(), results_.end(), [&](const capture::Result& result) { return result.written == primal; });
  }
  /// Whether it writes to any tensor of the caller's.
  bool writes() const {
    return std::any_of(results_.begin(), results_.end(), [](const capture::Result& result) { return result.written.has_value(); });
  }
  /// True if the function itself takes gradients, by grad(), of its arguments or of tensors from outside.
  bool takes_gradients() const { return !takes_gradients_of_.empty(); }
  /// True if these gradients depend on the caller's graph in a call with `inputs` (dependent_inputs.h). The programs are for other calls.
  bool needs_callers_graph(const std::vector<at::Tensor>& inputs) const;
  /// Inputs come first among primals.
  bool is_input(size_t primal) const { return primal < first_.size(); }
  bool has_gradients() const { return has_gradients_; }
  /// True if the function makes a single autograd node, as its program does: little is gained then.
  bool has_one_node() const { return has_one_node_; }
  bool draws_random_numbers() const { return draws_; }
  /// True if it has data-dependent sizes: whether the program holds for a call is known only while it runs.
  bool has_data_sizes() const { return has_data_sizes_; }
  /// True if its forward calls an operator from outside LibTorch, which may have side effects.
  bool calls_users_operator() const { return calls_users_operator_; }
  /// Its symbols for a trace in which the backed ones have these values.
  DynamicRow dynamic_at(const capture::Bindings& now) const;
  /// True if all results lead to the same autograd nodes, so that one node can represent all: FunctionCall::has_separate_results.
  bool may_have_one_node(const std::vector<at::Tensor>& primals) const;
  /// True if custom Functions in it were traced into: only the traced backward has their formulas.
  bool has_formulas() const { return has_formulas_; }
  bool is_fit() const { return proved_ != nullptr; }
  const std::shared_ptr<const void>& shape() const { return shape_; }
  /// True if both read the same outside tensors and return the same non-tensor values: only then can one program serve both.
  bool has_same_outside_tensors(const Specialisation& other) const;
  /// The returned tensors that are copied, since the caller will write to them and they may share memory: FunctionOutput::owned.
  const std::vector<size_t>& copied() const { return copied_; }
  const std::vector<uint32_t>& lasting() const { return lasting_; }
  const std::vector<uint32_t>& leaves() const { return leaves_; }
  /// Indices of the primals that need a gradient.
  std::vector<uint32_t> with_gradients() const {
    std::vector<uint32_t> list;
    for (uint32_t i = 0; i < needs_gradient_.size(); ++i) {
      if (needs_gradient_[i]) list.push_back(i);
    }
    return list;
  }
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
  std::vector<capture::Result> results_;
  std::vector<capture::Returned> returned_;
  std::vector<capture::AskedNumber> numbers_;
  std::vector<OutsideTensor> lifted_;
  capture::Facts lifted_row_;
  std::vector<int64_t> offsets_;      // of inputs, then of outside tensors; empty if they do not matter
  std::vector<bool> needs_gradient_;  // by primal
  std::vector<uint32_t> lasting_, leaves_, takes_gradients_of_;
  std::vector<std::vector<uint32_t>> histories_;  // FunctionTrace::Histories::primals
  bool has_gradients_ = false, has_one_node_ = false, draws_ = false, has_formulas_ = false, has_data_sizes_ = false;
  bool calls_users_operator_ = false;
  std::shared_ptr<const void> shape_;
  std::string shape_facts_;
  std::vector<size_t> copied_;
  std::atomic<State> state_ = State::InUse;
  std::atomic<bool> is_exact_ = false, learns_at_once_ = false;
  std::atomic<uint32_t> calls_without_program_ = 0, layouts_chosen_ = 0;
  CallsInVain with_other_numbers_;
  std::weak_ptr<Family> family_;

  mutable base::ForkSafe<std::mutex> mutex_{base::ForkRank::Leaf};  // guards what follows
  std::vector<std::shared_ptr<const ProgramPair>> pairs_;           // the programs for the next call first
  std::weak_ptr<const ProgramPair> missed_;                         // the argument of the last note_miss()
  std::unique_ptr<ProvedSizes> proved_;                             // nullptr unless this is a fit
};

}  // namespace hindcast::engine
