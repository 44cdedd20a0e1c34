#include "engine/compile/compile_queue.h"

#include "base/first_line.h"
#include "base/fork.h"
#include "base/log.h"
#include "capture/graph/copy_graph.h"
#include "engine/compile/background.h"
#include "engine/counters/stats_recorder.h"
#include "engine/plan/backward_plan.h"

#include <algorithm>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <utility>

namespace hindcast::engine {
namespace {

base::ForkSafe<std::mutex>& warnings_mutex = *new base::ForkSafe<std::mutex>(base::ForkRank::Leaf);
auto& said = *new std::set<std::string>;

// A missing compiler fails every graph with the same message: only the first one is a warning. The message's first line identifies it;
// after that comes the kernel's source.
bool is_first_warning(std::string text) {
  text.resize(std::min(text.size(), text.find('\n')));
  const std::lock_guard lock(warnings_mutex);
  return said.size() < 100 && said.insert(std::move(text)).second;
}

void log_failure(uint32_t graph, std::string_view what_stays, const std::string& why) {
  stats_recorder().add_compiler_failure();
  if (is_first_warning(why)) {
    HC_LOG(CompiledAutograd, Warning, "{} {} stays with ATen: {}", what_stays, graph, why);
  } else {
    HC_LOG(CompiledAutograd, Info, "{} {} stays with ATen: {}", what_stays, graph, why);
  }
}

void make_plan(PlanSlot& slot, const CompileJob& job) {
  const auto graph = job.shares ? capture::sharing_copy_of(*slot.graph()) : capture::copy_of(*slot.graph());
  const auto* const request = std::get_if<LowerRequest>(&job.what);
  if (request == nullptr) return slot.publish(graph, plan_of(graph));
  Lowered lowered = lower(graph, *request);
  slot.publish(graph, std::move(lowered.plan));
  if (lowered.groups != 0) stats_recorder().add_fused_graph();
  if (!lowered.first_failure.empty()) log_failure(graph->id, "a part of graph", lowered.first_failure);
}

void run(const CompileJob& job) {
  const auto slot = job.slot.lock();
  if (!slot) return;
  try {
    make_plan(*slot, job);
  } catch (const NotLowered& error) {
    if (error.why() == NotLowered::Why::Cancelled) return;
    slot->give_up();
    stats_recorder().add_refused_graph();
    HC_LOG(CompiledAutograd, Error, "graph {} stays with ATen, please report it: {}", slot->graph()->id, error.what());
  } catch (const std::exception& error) {
    slot->give_up();
    log_failure(slot->graph()->id, "graph", base::first_line(error));
  }
}

void run_later(codegen::LaterJob job) { run_in_background({.run = std::move(job.run), .is_wanted = std::move(job.is_wanted)}); }

size_t waiting_bytes(const CompileJob& job) {
  const auto* const request = std::get_if<LowerRequest>(&job.what);
  return request != nullptr && request->check ? request->check->footprint() : 0;
}

}  // namespace

void compile(CompileJob job, bool in_background) {
  if (auto* const request = std::get_if<LowerRequest>(&job.what)) {
    request->is_cancelled = process_ends;  // process exit must not wait for all kernels of a large graph
    // Not with a check, which must see every kernel, and not without a background: kernels would then change between calls.
    if (in_background && request->check == nullptr) request->later = run_later;
  }
  if (!in_background) return run(job);
  const auto shared = std::make_shared<const CompileJob>(std::move(job));
  const bool is_added = run_in_background(
      {.run = [shared] { run(*shared); }, .is_wanted = [shared] { return !shared->slot.expired(); }, .bytes = waiting_bytes(*shared)});
  if (is_added) return;
  if (const auto slot = shared->slot.lock()) slot->give_up();
  stats_recorder().add_dropped_check();
  HC_LOG(CompiledAutograd, Info, "a graph stays with ATen: the pending checks already hold {} MiB", kMostWaitingBytes >> 20);
}

}  // namespace hindcast::engine
