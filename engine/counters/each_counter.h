#pragma once
// The counters of Stats by name, for front ends of other languages.

#include "hindcast/stats.h"

namespace hindcast::engine {

/// Calls `f(name, value)` for each number: counts, and times in microseconds.
template <class F>
void for_each_counter(const Stats& stats, const F& f) {
#define HC_COUNTER(name) f(#name, stats.name)
  HC_COUNTER(backwards);
  HC_COUNTER(hits);
  HC_COUNTER(misses);
  HC_COUNTER(unique_graphs);
  HC_COUNTER(fused_graphs);
  HC_COUNTER(nodes);
  HC_COUNTER(opaque_calls);
  HC_COUNTER(hook_calls);
  HC_COUNTER(segment_guard_failures);
  HC_COUNTER(refused_graphs);
  HC_COUNTER(compiler_failures);
  HC_COUNTER(dropped_checks);
  HC_COUNTER(left_calls);
  HC_COUNTER(cuda_graphs);
  HC_COUNTER(cuda_graph_launches);
  HC_COUNTER(cuda_graph_bytes);
  HC_COUNTER(kept_graphs);
  HC_COUNTER(kept_bytes);
  HC_COUNTER(evicted_graphs);
  HC_COUNTER(non_finite_backwards);
  HC_COUNTER(reused_buffers);
  HC_COUNTER(fresh_buffers);
  HC_COUNTER(returned_buffers);
  HC_COUNTER(held_buffers);
  HC_COUNTER(held_bytes);
  HC_COUNTER(collect_us);
  HC_COUNTER(trace_us);
  HC_COUNTER(run_us);
#undef HC_COUNTER
}

/// Calls `f(name, map)` for each map from a name or a reason.
template <class F>
void for_each_map(const Stats& stats, const F& f) {
#define HC_MAP(name) f(#name, stats.name)
  HC_MAP(misses_by_reason);
  HC_MAP(fallbacks_by_reason);
  HC_MAP(opaque_nodes);
  HC_MAP(opaque_reasons);
  HC_MAP(without_cuda_graph);
  HC_MAP(eager_functions);
#undef HC_MAP
}

}  // namespace hindcast::engine
