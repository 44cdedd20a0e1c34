#include "engine/miss_log.h"

#include "engine/base/log.h"
#include "engine/stats_recorder.h"

#include <map>
#include <mutex>
#include <set>
#include <span>

namespace hindcast::engine {
namespace {

// Every structure that was captured, as a tree: from what came before (a hash) and the node's class to the sizes of the
// keys that such a node had there.
struct SeenNodes {
  std::mutex mutex;
  std::set<std::pair<uint64_t, uint64_t>> nodes;                          // (what came before, this node's bytes)
  std::map<std::pair<uint64_t, std::string>, std::vector<size_t>> sizes;  // (what came before, name)
};
SeenNodes& seen_nodes() {
  static auto* seen = new SeenNodes;
  return *seen;
}

constexpr size_t kMostNodes = 200'000;  // a program whose every backward has another structure must not grow for ever

cache::Miss first_new_node(const capture::Collected& collected) {
  SeenNodes& seen = seen_nodes();
  const std::lock_guard lock(seen.mutex);
  if (seen.nodes.size() > kMostNodes) {
    seen.nodes.clear();
    seen.sizes.clear();
  }
  cache::Miss miss{.kind = cache::Miss::Kind::NewNode};
  bool found = false;
  uint64_t before = 0;
  const auto visit = [&](const std::string& name, uint32_t call, std::span<const uint8_t> bytes) {
    const uint64_t hash = cache::hash_of(bytes).low;
    auto& sizes = seen.sizes[{before, name}];
    if (seen.nodes.emplace(before, hash).second) {
      if (!found) {
        found = true;
        miss.node = name;
        miss.node_call = call;
        miss.key_size = bytes.size();
        miss.previous_key_sizes = sizes;
      }
      sizes.push_back(bytes.size());
    }
    before = (before ^ hash) * 0x9E3779B97F4A7C15ull + 1;
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
      miss.what = resume.as_collected ? "the results of a hook or an opaque node are not those of the capture"
                                      : "a hook changed this node's hooks or saved tensors; the rest runs as itself";
    }
    reasons.push_back(std::move(miss));
  }
  stats_recorder().add_miss_reason(cache::name(reasons.front().kind), cache::sentence(reasons.front()));
  for (const auto& miss : reasons) log(miss);
}

void log_graph(const capture::Graph& graph) {
  if (base::enabled(base::Channel::CompiledAutograd, base::Level::Info)) {
    base::write_log(base::Channel::CompiledAutograd, base::Level::Info, graph.print());
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
  seen.nodes.clear();
  seen.sizes.clear();
}

}  // namespace hindcast::engine
