#include "capture/function/dependent_inputs.h"

#include "capture/function/history.h"

#include <torch/csrc/autograd/function.h>

#include <algorithm>
#include <limits>
#include <unordered_map>
#include <unordered_set>

namespace hindcast::capture {

using torch::autograd::Edge;
using torch::autograd::Node;

namespace {

/// Looks whether the history of an input leads to one of `asked`.
class Search {
 public:
  Search(const std::vector<Edge>& edges, const std::vector<uint32_t>& asked) : edges_(edges) {
    for (const uint32_t input : asked) {
      const Edge& edge = edges[input];
      if (!edge.is_valid()) continue;
      asked_.emplace(edge.function.get(), input);
      lowest_ = std::min(lowest_, edge.function->topological_nr());
    }
  }

  void run() {
    if (asked_.empty()) return;
    for (uint32_t i = 0; i < edges_.size(); ++i) {
      note(edges_[i], i);
      visit(edges_[i]);
    }
    while (!open_.empty() && !found) {
      const Node* node = open_.back();
      open_.pop_back();
      for (const Edge& edge : node->next_edges()) {
        note(edge);
        visit(edge);
      }
    }
  }

  bool found = false;

 private:
  static constexpr uint32_t kNoInput = std::numeric_limits<uint32_t>::max();

  // Finds an asked one, other than `of`, whose edge this is.
  void note(const Edge& edge, uint32_t of = kNoInput) {
    if (!edge.is_valid()) return;
    const auto [first, last] = asked_.equal_range(edge.function.get());
    for (auto each = first; each != last; ++each) {
      if (each->second != of && edges_[each->second].input_nr == edge.input_nr) found = true;
    }
  }
  // A node's successors have lower topological numbers.
  void visit(const Edge& edge) {
    const Node* node = edge.function.get();
    if (node != nullptr && node->topological_nr() > lowest_ && seen_.insert(node).second) open_.push_back(node);
  }

  const std::vector<Edge>& edges_;
  std::unordered_multimap<const Node*, uint32_t> asked_;
  uint64_t lowest_ = std::numeric_limits<uint64_t>::max();
  std::unordered_set<const Node*> seen_;
  std::vector<const Node*> open_;
};

}  // namespace

bool needs_callers_graph(const std::vector<Edge>& edges, const std::vector<uint32_t>& asked) {
  const auto has_hook = [&](uint32_t one) { return edges[one].is_valid() && has_hooks(*edges[one].function); };
  if (std::any_of(asked.begin(), asked.end(), has_hook)) return true;
  Search search(edges, asked);
  search.run();
  return search.found;
}

}  // namespace hindcast::capture
