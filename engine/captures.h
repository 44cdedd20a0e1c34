#pragma once
// All that this process has captured: entries by key, bounded by their number and by bytes.
//
// Over the number of structures, the structure that was not used for longest goes; over the bytes, the capture, so that of a
// structure with a hook that deviates here and there the captures of the common way stay. Somebody who runs what has gone
// keeps it until the run is done.

#include "cache/graph_cache.h"
#include "engine/payoff.h"
#include "engine/variants.h"

#include <memory>
#include <vector>

namespace hindcast::engine {

class Captures {
 public:
  static Captures& of_process();

  std::shared_ptr<Entry> find(const cache::KeyView& key) const { return entries_.find(key); }

  /// What Payoff asks for.
  Payoff::Room room(const Options& options) const;

  /// Puts `variant` into `entry`, or the one that another thread put there for `key` meanwhile, and lets others go as the
  /// options say. False: it alone is larger than Options::cache_bytes, and is not kept.
  bool keep(const cache::KeyView& key, const std::shared_ptr<Entry>& entry, std::shared_ptr<Variant> variant, const Options& options);

  std::vector<std::shared_ptr<Variant>> variants() const;
  uint64_t evicted() const { return evicted_.load(std::memory_order_relaxed); }
  void forget();

 private:
  void shrink_to(size_t bytes, const Variant& newest);

  cache::GraphCache<Entry> entries_;
  std::atomic<uint64_t> evicted_ = 0;
};

/// The graphs that the cache holds now, in the order of their capture.
std::vector<std::shared_ptr<const capture::Graph>> captured_graphs();

/// Forgets all captured graphs, and which structures paid.
void forget_graphs();

}  // namespace hindcast::engine
