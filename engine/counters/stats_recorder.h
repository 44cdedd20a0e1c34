#pragma once

#include "base/fork.h"
#include "hindcast/stats.h"

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace hindcast::engine {

/// Counts what Stats shows, from any thread. What happens on every hit costs one relaxed add; rare events are counted by name, in a map
/// under a mutex.
class StatsRecorder {
 public:
  void add_backward() { add(backwards_, 1); }
  void add_hit() { add(hits_, 1); }
  /// Returns the graph's number, from 0.
  uint64_t add_graph() { return unique_graphs_.fetch_add(1, std::memory_order_relaxed); }
  void add_nodes(uint64_t count) { add(nodes_, count); }
  void add_collect_ns(uint64_t ns) { add(collect_ns_, ns); }
  void add_trace_ns(uint64_t ns) { add(trace_ns_, ns); }
  void add_run_ns(uint64_t ns) { add(run_ns_, ns); }
  void add_opaque_calls(uint64_t count) { add(opaque_calls_, count); }
  void add_hook_calls(uint64_t count) { add(hook_calls_, count); }
  void add_compiler_failure() { add(compiler_failures_, 1); }
  void add_fused_graph() { add(fused_graphs_, 1); }
  void add_dropped_check() { add(dropped_checks_, 1); }
  void add_refused_graph() { add(refused_graphs_, 1); }
  /// Returns the backward's number among these, from 0.
  uint64_t add_non_finite_backward() { return non_finite_backwards_.fetch_add(1, std::memory_order_relaxed); }
  uint64_t non_finite_backwards() const { return non_finite_backwards_.load(std::memory_order_relaxed); }
  void add_segment_guard_failure() { add(segment_guard_failures_, 1); }

  void add_left_calls(uint64_t count) { add(left_calls_, count); }
  void add_recording() { add(cuda_graphs_, 1); }
  void add_recording_launch() { add(cuda_graph_launches_, 1); }
  void add_not_recorded(std::string_view reason) { add_reason(without_cuda_graph_, reason); }
  void add_eager_function(std::string_view reason) { add_reason(eager_functions_, reason); }

  void add_miss() { add(misses_, 1); }
  /// Why something was captured: `reason` is counted, `sentence` is added to recent_misses().
  void add_miss_reason(std::string_view reason, std::string sentence = {});
  void add_fallback(std::string_view reason);
  void add_opaque_node(std::string_view node_name, std::string_view reason);

  Stats snapshot() const;
  /// The sentences of the last kRecentMisses misses, oldest first.
  std::vector<std::string> recent_misses() const;
  void reset();

  static constexpr size_t kRecentMisses = 20;

 private:
  using Counter = std::atomic<uint64_t>;
  static void add(Counter& counter, uint64_t count) { counter.fetch_add(count, std::memory_order_relaxed); }
  void add_reason(std::map<std::string, std::uint64_t>& counts, std::string_view reason);

  alignas(64) Counter backwards_ = 0;
  Counter hits_ = 0, nodes_ = 0, collect_ns_ = 0, run_ns_ = 0, opaque_calls_ = 0, hook_calls_ = 0;
  Counter unique_graphs_ = 0, misses_ = 0, trace_ns_ = 0, segment_guard_failures_ = 0, refused_graphs_ = 0, compiler_failures_ = 0,
          fused_graphs_ = 0, non_finite_backwards_ = 0, dropped_checks_ = 0, left_calls_ = 0, cuda_graphs_ = 0, cuda_graph_launches_ = 0;

  mutable base::ForkSafe<std::mutex> mutex_{base::ForkRank::Leaf};  // guards everything below
  std::map<std::string, std::uint64_t> misses_by_reason_, fallbacks_by_reason_, opaque_nodes_, without_cuda_graph_, eager_functions_;
  std::map<std::string, std::string> opaque_reasons_;
  std::deque<std::string> recent_misses_;
};

/// The recorder of this process.
StatsRecorder& stats_recorder();

}  // namespace hindcast::engine
