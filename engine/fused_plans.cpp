#include "engine/fused_plans.h"

#include "capture/graph/copy_graph.h"
#include "codegen/plan/aten_call.h"
#include "codegen/kernel/check_kernel.h"
#include "codegen/cpu/kernels.h"
#include "codegen/fuse/fuse.h"
#include "codegen/passes/pipeline.h"
#include "engine/background.h"
#include "base/check.h"
#include "base/fork.h"
#include "base/log.h"
#include "engine/diagnosis/reproducer.h"
#include "engine/stats_recorder.h"

#include <mutex>
#include <set>
#include <string>

namespace hindcast::engine {
namespace {

struct WrongPlan : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Cancelled {};

// The optimised graph against the capture, to the bit but for what the passes do not keep.
void verify(const codegen::Optimised& optimised, const capture::ReplayCheck& check) {
  capture::ReplayCheck expected = check;
  for (auto& [value, tensor] : expected.results) value = optimised.now(value);
  const auto wrong =
      expected.find_difference(*optimised.graph, optimised.keeps_signs_of_zeros ? capture::Zeros::Signed : capture::Zeros::Unsigned);
  if (!wrong) return;
  std::unordered_map<uint32_t, at::Tensor> given;
  for (const auto& [value, tensor] : check.inputs) given[value.index] = tensor;
  const std::string folder = write_reproducer({*optimised.graph, given, *wrong});
  throw WrongPlan(base::format("behind the passes over it, {}{}{}\n{}", *wrong, folder.empty() ? "" : "\nwhat shows it is in ", folder,
                               optimised.graph->print()));
}

// Every kernel against ATen, on what the capture was given.
void verify(const capture::Graph& graph, const codegen::Schedule& schedule,
            const std::vector<std::shared_ptr<const codegen::CpuKernel>>& kernels, const capture::ReplayCheck& check) {
  const auto values = check.replay(graph);
  capture::Env env;
  HC_CHECK(capture::Evaluator(*graph.symbols).evaluate(capture::bindings_at_capture(*graph.symbols), env));
  for (size_t i = 0; i < schedule.groups.size(); ++i) {
    const codegen::Group& group = schedule.groups[i];
    const auto wrong = codegen::find_difference(graph, group, kernels[i], values, env);
    if (!wrong) continue;
    const std::string folder = write_reproducer({graph, values, *wrong, &group});
    throw WrongPlan(base::format("{}{}{}\n{}\n{}", *wrong, folder.empty() ? "" : "\nwhat shows it is in ", folder,
                                 codegen::cpu_source(group.body), graph.print()));
  }
}

void log_groups(const codegen::Schedule& schedule, const capture::Graph& graph) {
  if (!base::enabled(base::Channel::Fusion, base::Level::Info)) return;
  for (const codegen::Group& group : schedule.groups) {
    HC_LOG(Fusion, Info, "graph {}: {} ops in one kernel{}, {} loads, {} stores; it stopped growing at {}", graph.id, group.members.size(),
           group.body.by_rows ? " by rows" : "", group.loads.size(), group.stores.size(), group.stopped);
  }
}

std::vector<std::shared_ptr<const codegen::CpuKernel>> kernels_of(const codegen::Schedule& schedule) {
  std::vector<std::shared_ptr<const codegen::CpuKernel>> kernels;
  for (const codegen::Group& group : schedule.groups) {
    if (process_ends()) throw Cancelled();  // who waits for this thread must not wait for all kernels of a large graph
    std::string why_not;
    kernels.push_back(codegen::cpu_kernel(group.body, why_not));
    if (!kernels.back()) throw std::runtime_error(why_not);
  }
  return kernels;
}

void make_plan(Variant& variant, const FuseRequest& request) {
  const auto captured = capture::copy_of(*variant.graph());
  if (request.replay == Replay::Eager) return variant.publish(captured, std::make_shared<const codegen::Plan>(captured));
  const codegen::Optimised optimised = codegen::optimise(captured, request.replay == Replay::GroupsThroughAten);
  if (request.check && optimised.graph != captured) verify(optimised, *request.check);
  const auto& graph = optimised.graph;
  const codegen::Schedule schedule = codegen::fuse(*graph);
  log_groups(schedule, *graph);
  if (schedule.groups.empty() && graph == captured) return variant.publish(captured, std::make_shared<const codegen::Plan>(captured));
  codegen::Plan::MakeKernelCall make_call = [&](const codegen::Group& group) { return codegen::make_aten_call(group, graph); };
  std::vector<std::shared_ptr<const codegen::CpuKernel>> kernels;
  size_t next = 0;
  if (request.replay == Replay::Kernels) {
    kernels = kernels_of(schedule);
    if (request.check) verify(*graph, schedule, kernels, *request.check);
    make_call = [&](const codegen::Group& group) { return codegen::make_kernel_call(group, kernels[next++]); };
  }
  variant.publish(captured, std::make_shared<const codegen::Plan>(graph, schedule, make_call));
  if (!schedule.groups.empty()) stats_recorder().add_fused_graph();
}

// A missing compiler fails every graph in the same words: the first time is worth a warning.
bool is_said_first(const std::string& text) {
  static auto& mutex = *new base::ForkSafe<std::mutex>(base::ForkRank::Leaf);
  static auto* said = new std::set<std::string>;
  const std::lock_guard lock(mutex);
  return said->size() < 100 && said->insert(text).second;
}

void try_to_make_plan(const FuseRequest& request) {
  const auto variant = request.variant.lock();
  if (!variant) return;
  try {
    make_plan(*variant, request);
  } catch (const Cancelled&) {
  } catch (const WrongPlan& error) {
    stats_recorder().add_refused_graph();
    HC_LOG(CompiledAutograd, Error, "graph {} stays with ATen, please report it: {}", variant->graph()->id, error.what());
  } catch (const std::exception& error) {
    stats_recorder().add_compiler_failure();
    const uint32_t id = variant->graph()->id;
    if (is_said_first(error.what())) {
      HC_LOG(CompiledAutograd, Warning, "graph {} stays with ATen: {}", id, error.what());
    } else {
      HC_LOG(CompiledAutograd, Info, "graph {} stays with ATen: {}", id, error.what());
    }
  }
}

}  // namespace

void fuse(FuseRequest request, bool in_background) {
  if (!in_background) return try_to_make_plan(request);
  const size_t bytes = request.check ? request.check->footprint() : 0;
  const auto shared = std::make_shared<const FuseRequest>(std::move(request));
  const bool added = run_in_background(
      {.run = [shared] { try_to_make_plan(*shared); }, .is_wanted = [shared] { return !shared->variant.expired(); }, .bytes = bytes});
  if (!added) {
    stats_recorder().add_dropped_check();
    HC_LOG(CompiledAutograd, Info, "a graph stays with ATen: the checks that wait for their turn hold {} MiB already",
           kMostWaitingBytes >> 20);
  }
}

}  // namespace hindcast::engine
