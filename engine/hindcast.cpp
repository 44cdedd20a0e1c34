#include "engine/hindcast.h"

#include "codegen/kernel/backend.h"
#include "codegen/kernel/kept_counters.h"
#include "engine/background.h"
#include "base/fork.h"
#include "base/log.h"
#include "base/trace.h"
#include "engine/call_state.h"
#include "engine/captures.h"
#include "engine/counters/fallback.h"
#include "engine/counters/stats_recorder.h"
#include "engine/free_heap.h"
#include "engine/recordings.h"
#include "engine/diagnosis/log_setup.h"
#include "engine/diagnosis/miss_log.h"
#include "engine/diagnosis/report.h"
#include "engine/diagnosis/step_times.h"
#include "engine/takeover.h"
#include "engine/use_options.h"

#include <mutex>
#include <thread>
#include <vector>

namespace hindcast {

// Guards of one thread form a list, the innermost first.
struct Guard::Scope {
  Options options;
  std::thread::id thread = std::this_thread::get_id();
  Scope* outer = nullptr;

  // For good: its thread still points to the options.
  static void keep(std::shared_ptr<Scope> scope) {
    static auto& mutex = *new base::ForkSafe<std::mutex>(base::ForkRank::Leaf);
    static auto* kept = new std::vector<std::shared_ptr<Scope>>;
    const std::lock_guard lock(mutex);
    kept->push_back(std::move(scope));
  }

  static Scope*& innermost() {
    static thread_local Scope* scope = nullptr;
    return scope;
  }
};

Guard::Guard(std::shared_ptr<Scope> scope) : scope_(std::move(scope)) {}
Guard::Guard(Guard&& other) noexcept = default;

Guard::~Guard() {
  if (!scope_) return;
  if (scope_->thread != std::this_thread::get_id()) {
    HC_LOG(CompiledAutograd, Error, "a guard was destroyed on another thread than the one that made it: that thread stays enabled");
    Scope::keep(std::move(scope_));
    return;
  }
  // As a rule this is the innermost; guards kept in containers or globals may go in another order.
  for (Scope** link = &Scope::innermost(); *link; link = &(*link)->outer) {
    if (*link != scope_.get()) continue;
    *link = scope_->outer;
    break;
  }
  const Scope* now = Scope::innermost();
  engine::set_current_options(now ? &now->options : nullptr);
}

Guard enable(Options options) {
  engine::check(options);
  if (!options.compiler) options.compiler = engine::default_compiler();
  engine::configure_logs_from_environment();
  engine::install();
  auto scope = std::make_shared<Guard::Scope>();
  scope->options = std::move(options);
  scope->outer = Guard::Scope::innermost();
  Guard::Scope::innermost() = scope.get();
  engine::set_current_options(&scope->options);
  return Guard(std::move(scope));
}

Guard enable(Compiler compiler) {
  Options options;
  options.compiler = std::move(compiler);
  return enable(std::move(options));
}

bool active() {
  const Options* options = engine::current_options();
  return options && options->enabled && !engine::disabled_by_environment() && !engine::fallback_for_thread_state();
}

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
  engine::forget_structures();
  engine::forget_fallback_warnings();
  engine::stats_recorder().reset();
  engine::reset_step_times();
  codegen::forget_counters();
  for (const codegen::Backend* backend : codegen::backends()) backend->reset_memory_counts();
  engine::return_free_heap();
}

}  // namespace hindcast
