#include "engine/counters/stats_recorder.h"

#include "base/fork.h"

#include <utility>

namespace hindcast::engine {

void StatsRecorder::add_miss_reason(std::string_view reason, std::string sentence) {
  const std::lock_guard lock(mutex_);
  ++misses_by_reason_[std::string(reason)];
  if (sentence.empty()) return;
  if (recent_misses_.size() == kRecentMisses) recent_misses_.pop_front();
  recent_misses_.push_back(std::move(sentence));
}

void StatsRecorder::add_fallback(std::string_view reason) {
  const std::lock_guard lock(mutex_);
  ++fallbacks_by_reason_[std::string(reason)];
}

void StatsRecorder::add_reason(std::map<std::string, std::uint64_t>& counts, std::string_view reason) {
  const std::lock_guard lock(mutex_);
  constexpr size_t kMostReasons = 100;
  const bool is_known = counts.contains(std::string(reason));
  ++counts[is_known || counts.size() < kMostReasons ? std::string(reason) : "other reasons"];
}

void StatsRecorder::add_opaque_node(std::string_view node_name, std::string_view reason) {
  const std::lock_guard lock(mutex_);
  ++opaque_nodes_[std::string(node_name)];
  opaque_reasons_[std::string(node_name)] = reason;
}

Stats StatsRecorder::snapshot() const {
  const auto value = [](const Counter& counter) { return counter.load(std::memory_order_relaxed); };
  const auto us = [&](const Counter& ns) { return static_cast<double>(value(ns)) / 1000; };
  Stats stats;
  stats.unique_graphs = value(unique_graphs_);
  stats.hits = value(hits_);
  stats.misses = value(misses_);
  stats.nodes = value(nodes_);
  stats.collect_us = us(collect_ns_);
  stats.trace_us = us(trace_ns_);
  stats.run_us = us(run_ns_);
  stats.opaque_calls = value(opaque_calls_);
  stats.hook_calls = value(hook_calls_);
  stats.segment_guard_failures = value(segment_guard_failures_);
  stats.refused_graphs = value(refused_graphs_);
  stats.compiler_failures = value(compiler_failures_);
  stats.fused_graphs = value(fused_graphs_);
  stats.non_finite_backwards = value(non_finite_backwards_);
  stats.dropped_checks = value(dropped_checks_);
  stats.left_calls = value(left_calls_);
  stats.cuda_graphs = value(cuda_graphs_);
  stats.cuda_graph_launches = value(cuda_graph_launches_);
  stats.backwards = value(backwards_);  // read last: no other counter may exceed it
  const std::lock_guard lock(mutex_);
  stats.misses_by_reason = misses_by_reason_;
  stats.fallbacks_by_reason = fallbacks_by_reason_;
  stats.opaque_nodes = opaque_nodes_;
  stats.opaque_reasons = opaque_reasons_;
  stats.without_cuda_graph = without_cuda_graph_;
  stats.eager_functions = eager_functions_;
  return stats;
}

std::vector<std::string> StatsRecorder::recent_misses() const {
  const std::lock_guard lock(mutex_);
  return {recent_misses_.begin(), recent_misses_.end()};
}

void StatsRecorder::reset() {
  for (Counter* counter : {&backwards_, &hits_, &nodes_, &collect_ns_, &run_ns_, &opaque_calls_, &hook_calls_, &unique_graphs_, &misses_,
                           &trace_ns_, &segment_guard_failures_, &refused_graphs_, &compiler_failures_, &fused_graphs_,
                           &non_finite_backwards_, &dropped_checks_, &left_calls_, &cuda_graphs_, &cuda_graph_launches_}) {
    counter->store(0, std::memory_order_relaxed);
  }
  const std::lock_guard lock(mutex_);
  misses_by_reason_.clear();
  fallbacks_by_reason_.clear();
  opaque_nodes_.clear();
  opaque_reasons_.clear();
  without_cuda_graph_.clear();
  eager_functions_.clear();
  recent_misses_.clear();
}

StatsRecorder& stats_recorder() {
  // Never destroyed: a backward may still run on another thread while the process ends.
  static constinit base::MadeOnce<StatsRecorder> recorder;
  return recorder.get();
}

}  // namespace hindcast::engine
