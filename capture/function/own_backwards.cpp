// Backwards that a traced function starts itself: grad() and backward().
//
// A gradient of an argument is part of the program, unless eager's depends on more than the function: on the history of another argument
// that was computed from this one, or on a caller's hook. Then recording ends before the engine runs, and all edges lead to the arguments.

#include "capture/backward/facts.h"
#include "capture/function/dependent_inputs.h"
#include "capture/function/function_trace.h"

#include <torch/csrc/autograd/functions/accumulate_grad.h>

#include <algorithm>
#include <unordered_set>
#include <utility>

namespace hindcast::capture {

using torch::autograd::Edge;
using torch::autograd::edge_list;
using torch::autograd::Node;

bool FunctionTrace::begins_backward(StartedBackward& backward) {
  if (!is_forward_ || inputs_ == nullptr) return false;
  if (recorder_.is_released()) {
    move_all_hooks();  // those that it has registered meanwhile
    return false;
  }
  const std::vector<uint32_t> asked = asked_primals(backward.outputs);
  if (const char* const why = why_not_recorded(backward, asked)) {
    recorder_.refuse_now(why);
    join_callers_graph();
    for (edge_list* const edges : {&backward.roots, &backward.outputs}) {
      for (Edge& edge : *edges) {
        const auto is_its = [&](const Primal& primal) { return primal.inner.is_valid() && primal.inner == edge; };
        const auto primal = std::find_if(primals_.begin(), primals_.end(), is_its);
        if (primal != primals_.end()) edge = primal->outside;
      }
    }
    return true;
  }
  takes_gradients_of_.insert(asked.begin(), asked.end());
  return false;
}

// A leaf from outside becomes a primal, even if the function uses it for nothing else.
std::vector<uint32_t> FunctionTrace::asked_primals(const edge_list& outputs) {
  std::vector<uint32_t> asked;
  for (const Edge& edge : outputs) {
    if (!edge.is_valid()) continue;
    if (const auto* leaf = dynamic_cast<torch::autograd::AccumulateGrad*>(edge.function.get());
        leaf != nullptr && TracingTensor::get(leaf->variable) == nullptr && is_plain(leaf->variable)) {
      const at::Tensor variable = leaf->variable;
      recorder_.lifted(variable);
    }
    for (uint32_t i = 0; i < primals_.size(); ++i) {
      if ((primals_[i].inner.is_valid() && primals_[i].inner == edge) || (primals_[i].outside.is_valid() && primals_[i].outside == edge))
        asked.push_back(i);
    }
  }
  return asked;
}

// nullptr: the backward becomes a part of the program.
const char* FunctionTrace::why_not_recorded(const StartedBackward& backward, const std::vector<uint32_t>& asked) const {
  if (!backward.knows_all) return "it takes gradients at edges of autograd's graph, or of a tensor subclass";
  if (backward.accumulates) {
    const bool writes = backward.outputs.empty() ? leads_to_primals(backward.roots) : !asked.empty();
    return writes ? "it calls backward(), which writes to .grad of its arguments or of tensors from outside" : nullptr;
  }
  std::vector<Edge> edges;
  for (const Primal& primal : primals_) edges.push_back(primal.outside);
  return needs_callers_graph(edges, asked) ? kNeedsCallersGraph : nullptr;
}

bool FunctionTrace::leads_to_primals(const edge_list& roots) const {
  std::unordered_set<const Node*> ends, seen;
  for (const Primal& primal : primals_) {
    for (const Edge& edge : {primal.inner, primal.outside}) {
      if (edge.is_valid()) ends.insert(edge.function.get());
    }
  }
  std::vector<const Node*> open;
  const auto visit = [&](const Edge& edge) {
    if (edge.is_valid() && seen.insert(edge.function.get()).second) open.push_back(edge.function.get());
  };
  std::for_each(roots.begin(), roots.end(), visit);
  while (!open.empty()) {
    const Node* node = open.back();
    open.pop_back();
    if (ends.contains(node)) return true;
    std::for_each(node->next_edges().begin(), node->next_edges().end(), visit);
  }
  return false;
}

// After begin_at_arguments(), which is for leaves.
void FunctionTrace::join_callers_graph() {
  for (size_t i = 0; i < input_count(); ++i) {
    const Primal& primal = primals_[i];
    if (!primal.inner.is_valid() || primal.is_leaf) continue;
    replace_in_history(primal.inner, primal.outside);
    if (torch::autograd::impl::gradient_edge(primal.stand_in) == primal.inner)
      torch::autograd::impl::set_gradient_edge(primal.stand_in, primal.outside);
  }
  move_all_hooks();
}

}  // namespace hindcast::capture
