#pragma once
// What is known of one kind of call of a function: which inputs it is for, what it gives, and its programs, once a backward has been.

#include "base/fork.h"
#include "capture/function/function_trace.h"
#include "engine/aot/core.h"
#include "engine/aot/halves.h"
#include "engine/aot/outside_tensor.h"
#include "engine/dynamic_rule.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

namespace hindcast::engine {

/// Of the inputs of one call, as the guards see them.
struct InputFacts {
  explicit InputFacts(const std::vector<at::Tensor>& inputs, const std::vector<bool>& is_static = {}, bool with_kinds = false);
  capture::Facts row;
  std::vector<capture::FactKind> kinds;  // where asked for; sizes that may not become dynamic look like strides
  std::vector<uint32_t> first;           // by input: the place of its first fact
};

/// Sizes as expressions: a number where the fact is static, a symbol where it is dynamic.
capture::FunctionTrace::SizesOf sizes_of_inputs(const capture::Facts& row, const std::vector<uint32_t>& first, const DynamicRow& dynamic);

class Family;

/// Values of a fit's symbols at which it was compared with a trace.
class ProvedSizes {
 public:
  explicit ProvedSizes(bool infers) : infers_(infers) {}
  void add(const std::vector<int64_t>& values);
  bool has(const std::vector<int64_t>& values) const;

 private:
  const bool infers_;
  std::set<std::vector<int64_t>> each_;               // empty where sizes are inferred
  std::vector<std::pair<int64_t, int64_t>> between_;  // by symbol, where they are
};

class Specialisation {
 public:
  /// What `trace` found; the other is of a function that could not be traced.
  Specialisation(InputFacts facts, DynamicRow dynamic, const capture::FunctionTrace& trace, FunctionOutput output,
                 const HasOwner& has_owner);
  explicit Specialisation(InputFacts facts);
  /// As `other`, for all sizes that the relations of `symbols` allow.
  Specialisation(const Specialisation& other, std::shared_ptr<capture::SymbolTable> symbols, std::vector<capture::Returned> returned,
                 bool infers);

  /// True if it is right for a call with these inputs; then `bindings` are filled.
  bool matches(const capture::Facts& row, capture::Bindings& bindings) const;
  /// True if these inputs begin in their memory where the traced ones did, or if that does not matter.
  bool begin_alike(const std::vector<at::Tensor>& inputs) const;
  const capture::Facts& row() const { return row_; }
  bool is_dynamic() const { return !dynamic_.symbols.empty(); }
  /// It has symbols, and numbers that may be sizes: it is right for its own sizes alone.
  bool is_exact() const { return is_exact_.load(std::memory_order_acquire); }
  void make_exact() { is_exact_.store(true, std::memory_order_release); }
  /// What its symbols are in a call with these facts; nullopt: it differs in more than sizes.
  std::optional<std::vector<int64_t>> values_of_symbols(const capture::Facts& row) const;

  /// Of a fit: at these sizes a trace has had its program. It serves these, and where sizes are inferred those between.
  void prove(const std::vector<int64_t>& values);
  std::vector<int64_t> symbols_at_capture() const { return dynamic_.int_hints; }
  bool is_confirmed() const { return is_confirmed_.load(std::memory_order_acquire); }
  /// True the first time.
  bool confirm() { return !is_confirmed_.exchange(true); }

  /// Nobody is to find it.
  void drop() { is_dropped_.store(true, std::memory_order_release); }
  bool is_dropped() const { return is_dropped_.load(std::memory_order_acquire); }
  /// `made`: stand-ins of a trace that is gone.
  void look_for_escapes(const capture::Recorder::WeakStandIns& made);
  void set_family(std::weak_ptr<Family> family) { family_ = std::move(family); }
  std::shared_ptr<Family> family() const { return family_.lock(); }

  /// Calls run the function eagerly.
  bool is_eager() const { return is_eager_.load(std::memory_order_acquire); }
  void give_up() { is_eager_.store(true, std::memory_order_release); }

  /// For its first backward, which makes the programs.
  bool waits() const { return !is_eager() && halves() == nullptr; }
  /// The programs for the next call; null: no backward has been yet.
  std::shared_ptr<const Halves> halves() const;
  std::vector<std::shared_ptr<const Halves>> all_halves() const;
  /// The ones for gradients of all results; null: no backward has been yet.
  std::shared_ptr<const Halves> whole() const;
  /// Behind the same forward, for gradients like these; null: there are none.
  std::shared_ptr<const Halves> halves_for(const std::vector<capture::Facts>& tangents, const Halves& forward) const;
  /// Of one forward, the last one for the next call. All at once: a call in between must not find a forward whose backward is yet to come.
  void add(std::vector<std::shared_ptr<const Halves>> made);
  /// A call took these, and had others first. Twice in a row, they are the next call's first.
  void was_missed(const std::shared_ptr<const Halves>& halves);
  /// Better ones, in the place of all; who has the former goes on with them.
  void replace(const Halves& former, std::shared_ptr<const Halves> halves);
  /// Another trace gave the same results.
  bool is_like(const capture::FunctionTrace& trace) const;

  /// Sizes of inputs as expressions, for a trace that is to have this specialisation's symbols, with the values that they have now.
  capture::FunctionTrace::SizesOf sizes_of(const capture::Bindings& now) const;
  /// A call asked for numbers, as item() does, and got those that were traced.
  void numbers_were_the_same() {
    if (others_in_a_row_.load(std::memory_order_relaxed) != 0) others_in_a_row_.store(0, std::memory_order_relaxed);
  }
  /// It got others. True where that came again and again: what a program does up to there is in vain.
  bool numbers_are_always_others() {
    constexpr uint32_t kInVain = 8;
    return others_in_a_row_.fetch_add(1, std::memory_order_relaxed) + 1 >= kInVain;
  }
  /// False when it was asked some times: programs for other gradients again and again are not worth the measurements.
  bool may_choose_layout() { return layouts_chosen_.fetch_add(1) < 4; }
  /// Whether a call for which there is no program yet is worth a trace: ever fewer of those whose backward never comes.
  bool is_worth_a_trace() {
    const uint32_t call = calls_without_program_.fetch_add(1) + 1;
    return (call & (call - 1)) == 0;
  }

  /// A traced call went without a backward, as those of an evaluation that records gradients do. The next trace makes the programs at once.
  void had_no_backward() { learns_at_once_.store(true, std::memory_order_relaxed); }
  bool learns_at_once() const { return learns_at_once_.load(std::memory_order_relaxed); }

  const std::vector<capture::Result>& results() const { return results_; }
  const std::vector<capture::Returned>& returned() const { return returned_; }
  const std::vector<capture::AskedNumber>& numbers() const { return numbers_; }
  /// Tensors from outside; undefined ones are gone. A trace has them, too.
  std::vector<at::Tensor> find_lifted() const;
  bool needs_gradient(size_t primal) const { return needs_gradient_[primal]; }
  bool is_written(size_t primal) const {
    return std::any_of(results_.begin(), results_.end(), [&](const capture::Result& result) { return result.written == primal; });
  }
  /// Of primals, the inputs come first.
  bool is_input(size_t primal) const { return primal < first_.size(); }
  bool has_gradients() const { return has_gradients_; }
  /// The function has one node of autograd's, as a program has: there is little to gain.
  bool has_one_node() const { return has_one_node_; }
  bool draws_random_numbers() const { return draws_; }
  /// A run tells whether it is for a call, by sizes that depend on data.
  bool has_data_sizes() const { return has_data_sizes_; }
  /// What its symbols are in a trace with these values of the backed ones.
  DynamicRow dynamic_at(const capture::Bindings& now) const;
  /// Every result leads to the same autograd nodes, so one node may stand for all: FunctionCall::has_separate_results.
  bool may_have_one_node(const std::vector<at::Tensor>& primals) const;
  /// Custom Functions of it have been looked into: only the backward that was recorded has their formulas.
  bool has_formulas() const { return has_formulas_; }
  bool is_fit() const { return proved_ != nullptr; }
  const std::shared_ptr<const void>& shape() const { return shape_; }
  /// Both read the same tensors from outside, and return the same besides tensors: only then may one program serve for both.
  bool is_alike_outside(const Specialisation& other) const;
  const std::vector<uint32_t>& lasting() const { return lasting_; }
  const std::vector<uint32_t>& leaves() const { return leaves_; }
  /// Primals, by position.
  std::vector<uint32_t> with_gradients() const {
    std::vector<uint32_t> list;
    for (uint32_t i = 0; i < needs_gradient_.size(); ++i) {
      if (needs_gradient_[i]) list.push_back(i);
    }
    return list;
  }
  /// The tensor with these views taken of it, by the autograd state of this thread.
  at::Tensor view(at::Tensor of, const std::vector<capture::ViewStep>& views, const capture::Bindings& bindings) const;

 private:
  const capture::Facts row_;
  const std::vector<uint32_t> first_;
  const DynamicRow dynamic_;
  std::shared_ptr<capture::SymbolTable> symbols_;  // of the views
  capture::Evaluator evaluator_;
  std::vector<capture::Result> results_;
  std::vector<capture::Returned> returned_;
  std::vector<capture::AskedNumber> numbers_;
  std::vector<OutsideTensor> lifted_;
  capture::Facts lifted_row_;
  std::vector<int64_t> offsets_;      // of inputs, then of tensors from outside; empty: they do not matter
  std::vector<bool> needs_gradient_;  // by primal
  std::vector<uint32_t> lasting_, leaves_;
  std::vector<std::vector<uint32_t>> histories_;  // FunctionTrace::Histories::primals
  bool has_gradients_ = false, has_one_node_ = false, draws_ = false, has_formulas_ = false, has_data_sizes_ = false;
  std::shared_ptr<const void> shape_;
  std::string shape_facts_;
  std::atomic<uint32_t> calls_without_program_ = 0, layouts_chosen_ = 0, others_in_a_row_ = 0;
  std::atomic<bool> is_eager_ = false, is_exact_ = false, is_confirmed_ = false, is_dropped_ = false, learns_at_once_ = false;
  std::weak_ptr<Family> family_;

  mutable base::ForkSafe<std::mutex> mutex_{base::ForkRank::Leaf};  // of what follows
  std::vector<std::shared_ptr<const Halves>> halves_;               // the one for the next call first
  std::weak_ptr<const Halves> missed_;                              // by the last call that missed known ones
  std::unique_ptr<ProvedSizes> proved_;                             // of a fit
};

}  // namespace hindcast::engine
