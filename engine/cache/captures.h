#pragma once
// The cache of all captures in this process: entries by key, bounded by the number of structures and by bytes.
//
// Over the number limit, the least recently used structure is evicted. Over the byte limit, the least recently used capture is, so a
// structure whose hook occasionally deviates keeps the captures of its common path. A run keeps alive what is evicted under it.

#include "cache/graph_cache.h"
#include "engine/cache/payoff.h"
#include "engine/cache/variants.h"

#include <memory>
#include <vector>

namespace hindcast::engine {

class Captures {
 public:
  static Captures& of_process();

  std::shared_ptr<Entry> find(const cache::KeyView& key) const { return entries_.find(key); }

  /// The cache's state as Payoff needs it.
  Payoff::Room room(const Options& options) const;

  /// Adds `variant` to `entry`, or to the entry that another thread has added for `key` meanwhile, and evicts others to meet the
  /// options' limits. Returns false, and keeps nothing, if the variant alone is larger than Options::cache_bytes.
  bool keep(const cache::KeyView& key, const std::shared_ptr<Entry>& entry, std::shared_ptr<Variant> variant, const Options& options);

  std::vector<std::shared_ptr<Variant>> variants() const;
  uint64_t evicted() const { return evicted_.load(std::memory_order_relaxed); }
  void forget();

 private:
  void shrink_to(size_t bytes, const Variant& newest);

  cache::GraphCache<Entry> entries_;
  std::atomic<uint64_t> evicted_ = 0;
};

/// The graphs in the cache, in the order of their capture.
std::vector<std::shared_ptr<const capture::Graph>> captured_graphs();

/// Forgets all captured graphs, and the statistics on which structures paid.
void forget_graphs();

}  // namespace hindcast::engine
