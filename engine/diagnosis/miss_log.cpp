#include "engine/diagnosis/miss_log.h"

#include "base/fork.h"
#include "base/log.h"
#include "base/trace.h"
#include "engine/counters/stats_recorder.h"
#include "engine/diagnosis/trace/graph_records.h"

#include <algorithm>
#include <array>
#include <functional>
#include <mutex>
#include <span>

namespace hindcast::engine {
namespace {

constexpr uint64_t mixed(uint64_t before, uint64_t hash) { return ((before ^ hash) * 0x9E3779B97F4A7C15ull + 1) | 1; }

// The nodes of all captured structures, as a prefix tree: a node is identified by the hash of its predecessors and its own bytes. The table
// has a fixed size, allocated once, since small long-lived blocks would fragment the tensors' heap. It is cleared when full.
class SeenNodes {
 public:
  base::ForkSafe<std::mutex> mutex{base::ForkRank::Leaf};

  /// Returns true if no structure had this node at this position.
  bool add(uint64_t node) {
    if (count_ > nodes_.size() / 4 * 3) clear();
    size_t at = node % nodes_.size();
    while (nodes_[at] != 0 && nodes_[at] != node) at = (at + 1) % nodes_.size();
    if (nodes_[at] == node) return false;
    nodes_[at] = node;
    ++count_;
    return true;
  }

  /// The most recent key sizes of nodes with one name at one position.
  struct Sizes {
    uint64_t place = 0;
    std::array<uint32_t, 4> sizes = {};
    uint32_t count = 0;

    void add(size_t size) { sizes[count++ % sizes.size()] = static_cast<uint32_t>(size); }
    std::vector<size_t> known() const { return {sizes.begin(), sizes.begin() + std::min<size_t>(count, sizes.size())}; }
  };
  Sizes& sizes_at(uint64_t place) {
    Sizes* free = nullptr;
    for (size_t i = 0; i < kSlots; ++i) {
      Sizes& sizes = sizes_[(place + i) % sizes_.size()];
      if (sizes.place == place) return sizes;
      if (sizes.place == 0 && free == nullptr) free = &sizes;
    }
    Sizes& sizes = free != nullptr ? *free : sizes_[place % sizes_.size()];  // the latest position wins
    sizes = {place};
    return sizes;
  }

  void clear() {
    std::fill(nodes_.begin(), nodes_.end(), 0);
    std::fill(sizes_.begin(), sizes_.end(), Sizes{});
    count_ = 0;
  }

 private:
  static constexpr size_t kSlots = 4;                                     // of the table in which a position may be
  std::vector<uint64_t> nodes_ = std::vector<uint64_t>(size_t{1} << 16);  // 0: free
  std::vector<Sizes> sizes_ = std::vector<Sizes>(size_t{1} << 13);
  size_t count_ = 0;
};
SeenNodes& seen_nodes() {
  static constinit base::MadeOnce<SeenNodes> seen;
  return seen.get();
}

cache::Miss first_new_node(const capture::Collected& collected) {
  SeenNodes& seen = seen_nodes();
  const std::lock_guard lock(seen.mutex);
  cache::Miss miss{.kind = cache::Miss::Kind::NewNode};
  bool found = false;
  uint64_t before = 1;
  const auto visit = [&](const std::string& name, uint32_t call, std::span<const uint8_t> bytes) {
    const uint64_t node = mixed(before, cache::hash_of(bytes).low);
    const uint64_t place = mixed(before, std::hash<std::string>()(name));
    if (seen.add(node)) {
      auto& sizes = seen.sizes_at(place);
      if (!found) {
        found = true;
        miss.node = name;
        miss.node_call = call;
        miss.key_size = bytes.size();
        miss.previous_key_sizes = sizes.known();
      }
      sizes.add(bytes.size());
    }
    before = node;
  };
  const uint8_t* key = collected.key.data();
  const size_t root_end = collected.calls.empty() ? collected.key.size() : collected.calls.front().key_begin;
  visit("torch::autograd::GraphRoot", 0, {key, root_end});
  miss.key_size = found ? miss.key_size : root_end;
  for (uint32_t i = 0; i < collected.calls.size(); ++i) {
    const auto& call = collected.calls[i];
    visit(call.node->name(), i + 1, {key + call.key_begin, key + call.key_end});
  }
  return miss;
}

void log(const cache::Miss& miss) {
  const std::string sentence = cache::sentence(miss);
  HC_LOG(Recompiles, Info, "{}", sentence);
  HC_LOG(CompiledAutogradVerbose, Info, "{}", sentence);
  if (miss.kind == cache::Miss::Kind::LimitReached && !miss.repeated) HC_LOG(CompiledAutograd, Warning, "{}", sentence);
}

}  // namespace

void log_misses(const capture::Collected& collected, bool new_structure, const capture::Resume& resume,
                const std::vector<cache::Miss>& misses) {
  std::vector<cache::Miss> reasons = misses;
  if (reasons.empty()) {
    cache::Miss miss;
    if (new_structure) {
      miss = first_new_node(collected);
      if (miss.node.empty()) miss.node = "torch::autograd::GraphRoot";  // seen before, and evicted since
    } else {
      miss.kind = cache::Miss::Kind::FailedGuard;
      miss.node = collected.calls[resume.call].node->name();
      miss.node_call = resume.call + 1;
      miss.what = resume.as_collected
                      ? "the results of a hook or an opaque node are not those of the capture"
                      : "a hook changed this node's hooks, its saved tensors or the thread's state; the rest runs as itself";
    }
    reasons.push_back(std::move(miss));
  }
  stats_recorder().add_miss_reason(cache::name(reasons.front().kind), cache::sentence(reasons.front()));
  for (const auto& miss : reasons) log(miss);
}

void log_graph(const capture::Graph& graph) {
  if (base::tracing()) record_graph(graph, "backward");
  if (base::is_for_output(base::Channel::CompiledAutograd, base::Level::Info)) {
    base::write_output(base::Channel::CompiledAutograd, base::Level::Info, graph.print());
  } else {
    HC_LOG(CompiledAutogradVerbose, Info, "{}", graph.print());
  }
  HC_LOG(GraphCode, Info, "{}", graph.print());
  HC_LOG(Graph, Info, "graph {}: {} instrs, {} values, {} symbols, {} relations", graph.id, graph.instrs.size(), graph.values.size(),
         graph.symbols->int_symbols() + graph.symbols->float_symbols(), graph.symbols->relations().size());
}

void forget_structures() {
  SeenNodes& seen = seen_nodes();
  const std::lock_guard lock(seen.mutex);
  seen.clear();
}

}  // namespace hindcast::engine
