#include "engine/aot/traced_function.h"

#include <torch/csrc/autograd/variable.h>

#include <set>
#include <unordered_set>
#include <utility>

namespace hindcast::engine {

using capture::Returned;

namespace {

// Whether a returned tensor is, or may share memory with, a tensor of the caller's or another returned one.
bool is_shared(const std::vector<Returned>& all, size_t i) {
  const Returned& one = all[i];
  if (one.from != Returned::From::Result) return one.from == Returned::From::Primal;
  if (one.same_as || !one.views.empty()) return true;
  return std::any_of(all.begin(), all.end(), [&](const Returned& other) {
    return &other != &one && other.from == Returned::From::Result && other.index == one.index;
  });
}

std::vector<size_t> shared_of_last(const std::vector<Returned>& all, size_t count) {
  std::vector<size_t> shared;
  for (size_t i = all.size() - count; i < all.size(); ++i) {
    if (is_shared(all, i)) shared.push_back(i);
  }
  return shared;
}

}  // namespace

bool same_number(const at::Scalar& a, const at::Scalar& b) {
  if (a.type() != b.type()) return false;
  if (a.isFloatingPoint()) return a.toDouble() == b.toDouble() || (a.toDouble() != a.toDouble() && b.toDouble() != b.toDouble());
  return a.isIntegral(/*includeBool=*/true) ? a.toLong() == b.toLong() : a.toComplexDouble() == b.toComplexDouble();
}

TracedFunction::TracedFunction(const capture::FunctionTrace& trace, detail::FunctionOutput output)
    : results_(trace.results()),
      numbers_(trace.numbers()),
      shape_(std::move(output.shape)),
      shape_facts_(std::move(output.facts)),
      returned_count_(trace.returned().size()),
      copied_(shared_of_last(trace.returned(), output.owned)),
      takes_gradients_of_(trace.takes_gradients_of().begin(), trace.takes_gradients_of().end()),
      has_gradients_(std::any_of(results_.begin(), results_.end(), [](const auto& result) { return result.is_differentiable; })),
      draws_(trace.draws_random_numbers()),
      has_formulas_(trace.has_formulas()),
      has_data_sizes_(trace.symbols()->unbacked_symbols() != 0),
      calls_users_operator_(trace.calls_users_operator()) {
  for (uint32_t i = 0; i < trace.primal_count(); ++i) {
    needs_gradient_.push_back(trace.needs_gradient(i));
    if (!trace.needs_gradient(i) || !trace.is_leaf(i)) continue;
    leaves_.push_back(i);
    if (i >= trace.input_count()) lasting_.push_back(i);
  }
  capture::FunctionTrace::Histories histories = trace.histories();
  groups_ = std::move(histories.groups);
  has_one_node_ = histories.nodes == 1;
  has_related_results_ = histories.one_leads_to_another;
}

std::vector<uint32_t> TracedFunction::with_gradients() const {
  std::vector<uint32_t> list;
  for (uint32_t i = 0; i < needs_gradient_.size(); ++i) {
    if (needs_gradient_[i]) list.push_back(i);
  }
  return list;
}

bool TracedFunction::may_have_one_node(const std::vector<at::Tensor>& primals) const {
  using torch::autograd::Node;
  if (groups_.size() < 2) return true;
  std::unordered_set<const Node*> all;
  uint64_t lowest = ~uint64_t(0);  // a node's successors have lower topological numbers
  for (const auto& group : groups_) {
    for (const uint32_t primal : group.primals) {
      const Node* node = torch::autograd::impl::gradient_edge(primals[primal]).function.get();
      all.insert(node);
      lowest = std::min(lowest, node->topological_nr());
    }
  }
  return std::all_of(groups_.begin(), groups_.end(), [&](const auto& group) {
    std::unordered_set<const Node*> seen;
    std::vector<const Node*> open;
    for (const uint32_t primal : group.primals) open.push_back(torch::autograd::impl::gradient_edge(primals[primal]).function.get());
    size_t missing = all.size();
    while (!open.empty() && missing > 0) {
      const Node* node = open.back();
      open.pop_back();
      if (!seen.insert(node).second) continue;
      missing -= all.contains(node);
      for (const torch::autograd::Edge& edge : node->next_edges()) {
        if (edge.function && edge.function->topological_nr() >= lowest) open.push_back(edge.function.get());
      }
    }
    return missing == 0;
  });
}

bool TracedFunction::is_like(const capture::FunctionTrace& trace) const {
  const auto same_result = [](const capture::Result& a, const capture::Result& b) {
    return a.is_differentiable == b.is_differentiable && a.written == b.written && a.versions == b.versions;
  };
  const auto same_asked = [](const capture::AskedNumber& a, const capture::AskedNumber& b) {
    return a.result == b.result && same_number(a.number, b.number);
  };
  const std::set<uint32_t>& takes = trace.takes_gradients_of();
  return std::equal(takes.begin(), takes.end(), takes_gradients_of_.begin(), takes_gradients_of_.end()) &&
         std::equal(results_.begin(), results_.end(), trace.results().begin(), trace.results().end(), same_result) &&
         std::equal(numbers_.begin(), numbers_.end(), trace.numbers().begin(), trace.numbers().end(), same_asked) &&
         returned_count_ == trace.returned().size();
}

}  // namespace hindcast::engine
