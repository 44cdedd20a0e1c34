#include "capture/backward/walk.h"

#include <algorithm>
#include <limits>

namespace hindcast::capture {
namespace {

constexpr size_t kLine = 64;  // size of a cache line

size_t slot_of(const void* node, size_t mask) {
  const auto bits = reinterpret_cast<uintptr_t>(node) >> 4;
  return (bits * 0x9E3779B97F4A7C15ull >> 20) & mask;
}

}  // namespace

uint32_t Walk::find(torch::autograd::Node* node) const {
  if (table_.empty()) return kNoCall;
  const size_t mask = table_.size() - 1;
  for (size_t slot = slot_of(node, mask);; slot = (slot + 1) & mask) {
    const Entry& entry = table_[slot];
    if (entry.epoch != epoch_) return kNoCall;
    if (entry.node == node) return entry.index;
  }
}

uint32_t Walk::index_of(torch::autograd::Node* node) {
  if (2 * (nodes_.size() + 1) > table_.size()) grow_table();
  const size_t mask = table_.size() - 1;
  size_t slot = slot_of(node, mask);
  for (;; slot = (slot + 1) & mask) {
    Entry& entry = table_[slot];
    if (entry.epoch != epoch_) break;
    if (entry.node == node) return entry.index;
  }
  const auto index = static_cast<uint32_t>(nodes_.size());
  table_[slot] = {node, index, epoch_};
  // Read later, in discover(): until then its cache lines, up to the edges, can be fetched together with those of its siblings.
  __builtin_prefetch(node);
  __builtin_prefetch(reinterpret_cast<const char*>(node) + kLine);
  nodes_.push_back({node, 0, 0, 0, 0, kNoCall, true, false});
  return index;
}

void Walk::grow_table() {
  table_.assign(std::max<size_t>(64, table_.size() * 2), Entry{nullptr, 0, epoch_ - 1});
  const size_t mask = table_.size() - 1;
  for (uint32_t i = 0; i < nodes_.size(); ++i) {
    size_t slot = slot_of(nodes_[i].node, mask);
    while (table_[slot].epoch == epoch_) slot = (slot + 1) & mask;
    table_[slot] = {nodes_[i].node, i, epoch_};
  }
}

// Counts dependencies from the roots on, as the engine does. A node below the smallest topological number of the wanted
// outputs cannot lead to them and is not entered.
void Walk::discover(const BackwardCall& call) {
  uint64_t min_topological_nr = 0;
  if (!call.outputs.empty()) {
    min_topological_nr = std::numeric_limits<uint64_t>::max();
    for (const auto& output : call.outputs) min_topological_nr = std::min(min_topological_nr, output.function->topological_nr());
  }
  const bool single_root = call.roots.size() == 1;
  for (const auto& root : call.roots) {
    if (!root.function) {
      roots_.push_back({kNoCall, 0});
      continue;
    }
    const auto before = nodes_.size();
    const uint32_t index = index_of(root.function.get());
    if (index == before) stack_.push_back(index);
    if (!single_root) ++nodes_[index].dependencies;
    roots_.push_back({index, root.input_nr});
  }
  while (!stack_.empty()) {
    const uint32_t index = stack_.back();
    stack_.pop_back();
    torch::autograd::Node* node = nodes_[index].node;
    nodes_[index].sequence_nr = node->sequence_nr();
    if (min_topological_nr != 0 && node->topological_nr() < min_topological_nr) continue;
    const auto& next_edges = node->next_edges();
    nodes_[index].first_edge = static_cast<uint32_t>(edges_.size());
    nodes_[index].edge_count = static_cast<uint32_t>(next_edges.size());
    for (const auto& edge : next_edges) {
      if (!edge.function) {
        edges_.push_back({kNoCall, 0});
        continue;
      }
      const auto before = nodes_.size();
      const uint32_t target = index_of(edge.function.get());
      if (target == before) stack_.push_back(target);
      ++nodes_[target].dependencies;
      edges_.push_back({target, edge.input_nr});
    }
  }
}

// With outputs, only nodes on a path to one of them run. Children first, without recursion.
void Walk::mark_needed(const BackwardCall& call) {
  for (auto& node : nodes_) node.needed = false;
  uint32_t output = 0;
  for (const auto& edge : call.outputs) {
    const uint32_t index = find(edge.function.get());
    if (index != kNoCall) {
      if (call.accumulate_grad) {
        nodes_[index].needed = true;
      } else {
        nodes_[index].captured = true;
        wanted_.push_back({index, edge.input_nr, output});
      }
    }
    ++output;
  }
  std::vector<uint8_t> seen(nodes_.size(), 0);
  std::vector<std::pair<uint32_t, uint32_t>> frames;
  for (const auto& root : roots_) {
    if (root.target == kNoCall || seen[root.target]) continue;
    seen[root.target] = 1;
    frames.emplace_back(root.target, 0);
    while (!frames.empty()) {
      auto& [index, next] = frames.back();
      Discovered& node = nodes_[index];
      if (next < node.edge_count) {
        const uint32_t target = edges_[node.first_edge + next++].target;
        if (target == kNoCall || seen[target]) continue;
        seen[target] = 1;
        frames.emplace_back(target, 0);
        continue;
      }
      for (uint32_t e = 0; e < node.edge_count && !node.needed; ++e) {
        const uint32_t target = edges_[node.first_edge + e].target;
        if (target != kNoCall && (nodes_[target].needed || nodes_[target].captured)) node.needed = true;
      }
      frames.pop_back();
    }
  }
}

void Walk::order(const BackwardCall& call, Collected& out) {
  std::priority_queue<Ready, std::vector<Ready>, RunsLater> ready;
  const bool filtered = !call.outputs.empty();
  const auto wanted = [&](uint32_t index) { return !filtered || nodes_[index].needed || nodes_[index].captured; };
  const auto push = [&](uint32_t index) { ready.push({nodes_[index].sequence_nr, index}); };
  const auto arrive = [&](uint32_t target) {
    if (--nodes_[target].dependencies == 0 && wanted(target)) push(target);
  };
  if (roots_.size() == 1) {
    push(roots_[0].target);  // the engine queues a single root at once, wanted or not
  } else {
    for (const auto& root : roots_) {
      if (root.target != kNoCall) arrive(root.target);
    }
  }
  order_.clear();
  while (!ready.empty()) {
    const uint32_t index = ready.top().index;
    ready.pop();
    nodes_[index].call = static_cast<uint32_t>(order_.size());
    order_.push_back(index);
    const Discovered& node = nodes_[index];
    if (!node.needed) continue;
    for (uint32_t e = 0; e < node.edge_count; ++e) {
      const uint32_t target = edges_[node.first_edge + e].target;
      if (target != kNoCall) arrive(target);
    }
  }

  const auto target_of = [&](const FoundEdge& edge) -> EdgeTarget {
    if (edge.target == kNoCall) return {kNoCall, 0};
    return {nodes_[edge.target].call, edge.input_nr};
  };
  out.calls.reserve(order_.size());
  for (const uint32_t index : order_) {
    const Discovered& node = nodes_[index];
    NodeCall& entry = out.calls.emplace_back();
    entry.node = node.node;
    entry.needed = node.needed;
    entry.has_captures = node.captured;
    entry.first_edge = static_cast<uint32_t>(out.edges.size());
    entry.edge_count = node.needed ? node.edge_count : 0;
    for (uint32_t e = 0; e < entry.edge_count; ++e) out.edges.push_back(target_of(edges_[node.first_edge + e]));
  }
  for (const auto& root : roots_) out.roots.push_back(target_of(root));
  for (const auto& capture : wanted_) {
    if (nodes_[capture.call].call != kNoCall) out.captures.push_back({nodes_[capture.call].call, capture.input_nr, capture.output});
  }
  std::stable_sort(out.captures.begin(), out.captures.end(), [](const auto& a, const auto& b) { return a.call < b.call; });
}

void Walk::run(const BackwardCall& call, Collected& out) {
  nodes_.clear();
  edges_.clear();
  stack_.clear();
  wanted_.clear();
  roots_.clear();
  if (++epoch_ == 0) {
    table_.clear();
    epoch_ = 1;
  }
  discover(call);
  if (!call.outputs.empty()) mark_needed(call);
  order(call, out);
}

}  // namespace hindcast::capture
