#include "hindcast/hindcast.h"

#include "base/trace.h"
#include "codegen/kernel/backend.h"
#include "codegen/kernel/kept_counters.h"
#include "engine/cache/captures.h"
#include "engine/compile/background.h"
#include "engine/compile/free_heap.h"
#include "engine/counters/fallback.h"
#include "engine/counters/stats_recorder.h"
#include "engine/cuda_graphs/recordings.h"
#include "engine/diagnosis/miss_log.h"
#include "engine/diagnosis/opaque_nodes.h"
#include "engine/diagnosis/report.h"
#include "engine/diagnosis/step_times.h"

namespace hindcast {

Stats stats() {
  Stats stats = engine::stats_recorder().snapshot();
  for (const codegen::Backend* backend : codegen::backends()) {
    const codegen::MemoryCounts memory = backend->memory_counts();
    stats.reused_buffers += memory.reused;
    stats.fresh_buffers += memory.fresh;
    stats.returned_buffers += memory.returned;
    stats.held_bytes += memory.held_bytes;
    stats.held_buffers += memory.held_buffers;
  }
  stats.kept_graphs = engine::PlanSlot::count_of_all();
  stats.kept_bytes = engine::PlanSlot::footprint_of_all();
  stats.cuda_graph_bytes = engine::RecordedPlan::bytes_of_all();
  stats.evicted_graphs = engine::Captures::of_process().evicted();
  return stats;
}

std::string report() { return engine::report(stats(), engine::stats_recorder().recent_misses()); }

void wait() { engine::wait_for_background(); }

std::size_t trim() {
  std::size_t bytes = engine::RecordedPlan::trim() + codegen::forget_counters();
  for (const codegen::Backend* backend : codegen::backends()) bytes += backend->trim_memory();
  engine::return_free_heap();
  return bytes;
}

void reset() {
  base::write_record("reset", {});
  engine::forget_graphs();
  engine::forget_backwards_with_graph();
  engine::forget_structures();
  engine::forget_fallback_warnings();
  engine::forget_opaque_node_warnings();
  engine::stats_recorder().reset();
  engine::reset_step_times();
  codegen::forget_counters();
  for (const codegen::Backend* backend : codegen::backends()) backend->reset_memory_counts();
  engine::return_free_heap();
}

}  // namespace hindcast
