#pragma once
// What a trace showed of a function: which tensors it returns and writes to, which gradients it has, what else it does. The same for every
// call that a specialisation serves.

#include "capture/function/function_trace.h"
#include "hindcast/detail/aot_core.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace hindcast::engine {

/// Whether a function that read one of these numbers, as by item(), would do the same with the other.
bool same_number(const at::Scalar& a, const at::Scalar& b);

class TracedFunction {
 public:
  /// Of a function that was not traced.
  TracedFunction() = default;
  TracedFunction(const capture::FunctionTrace& trace, detail::FunctionOutput output);

  const std::vector<capture::Result>& results() const { return results_; }
  const std::vector<capture::AskedNumber>& numbers() const { return numbers_; }
  /// What the function returns besides tensors.
  const std::shared_ptr<const void>& shape() const { return shape_; }
  bool has_same_shape(const TracedFunction& other) const { return shape_facts_ == other.shape_facts_; }
  /// The returned tensors that are copied, since the caller will write to them and they may share memory: FunctionOutput::owned.
  const std::vector<size_t>& copied() const { return copied_; }

  bool needs_gradient(size_t primal) const { return needs_gradient_[primal]; }
  /// Indices of the primals that need a gradient.
  std::vector<uint32_t> with_gradients() const;
  /// Those among them that are leaves.
  const std::vector<uint32_t>& leaves() const { return leaves_; }
  /// Those among them that are leaves from outside: usually parameters, which their owners keep alive.
  const std::vector<uint32_t>& lasting() const { return lasting_; }
  /// The primals whose gradients the function takes itself, by grad().
  const std::vector<uint32_t>& takes_gradients_of() const { return takes_gradients_of_; }
  bool takes_gradients() const { return !takes_gradients_of_.empty(); }

  bool is_written(size_t primal) const {
    return std::any_of(results_.begin(), results_.end(), [&](const capture::Result& result) { return result.written == primal; });
  }
  /// Whether it writes to any tensor of the caller's.
  bool writes() const {
    return std::any_of(results_.begin(), results_.end(), [](const capture::Result& result) { return result.written.has_value(); });
  }
  /// Whether the result is an argument that the function wrote to where autograd did not follow, as in no_grad mode.
  bool is_written_without_history(size_t result) const {
    return result < results_.size() && results_[result].written && !results_[result].is_differentiable;
  }

  bool has_gradients() const { return has_gradients_; }
  /// True if the function makes a single autograd node, as its program does: little is gained then.
  bool has_one_node() const { return has_one_node_; }
  /// True if all results lead to the same autograd nodes, so that one node can represent all: FunctionCall::has_separate_results.
  bool may_have_one_node(const std::vector<at::Tensor>& primals) const;
  const std::vector<capture::FunctionTrace::HistoryGroup>& groups() const { return groups_; }
  /// True if a result is in the history of another one: nodes of one program cannot lead from one result to another.
  bool has_related_results() const { return has_related_results_; }
  bool draws_random_numbers() const { return draws_; }
  /// True if it has data-dependent sizes: whether the program holds for a call is known only while it runs.
  bool has_data_sizes() const { return has_data_sizes_; }
  /// True if its forward calls an operator from outside LibTorch, which may have side effects.
  bool calls_users_operator() const { return calls_users_operator_; }
  /// True if custom Functions in it were traced into: only the traced backward has their formulas.
  bool has_formulas() const { return has_formulas_; }
  /// True if `trace` showed the same results, numbers and gradients.
  bool is_like(const capture::FunctionTrace& trace) const;

 private:
  std::vector<capture::Result> results_;
  std::vector<capture::AskedNumber> numbers_;
  std::shared_ptr<const void> shape_;
  std::string shape_facts_;
  size_t returned_count_ = 0;
  std::vector<size_t> copied_;
  std::vector<bool> needs_gradient_;  // by primal
  std::vector<uint32_t> lasting_, leaves_, takes_gradients_of_;
  std::vector<capture::FunctionTrace::HistoryGroup> groups_;
  bool has_gradients_ = false, has_one_node_ = false, has_related_results_ = false, draws_ = false, has_formulas_ = false,
       has_data_sizes_ = false;
  bool calls_users_operator_ = false;
};

}  // namespace hindcast::engine
