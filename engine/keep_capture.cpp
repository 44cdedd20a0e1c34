#include "engine/keep_capture.h"

#include "base/first_line.h"
#include "base/log.h"
#include "engine/cache/captures.h"
#include "engine/compile/compile_queue.h"
#include "engine/compile/free_heap.h"
#include "engine/compile/graph_compiler.h"
#include "engine/counters/stats_recorder.h"
#include "engine/diagnosis/miss_log.h"
#include "engine/diagnosis/verify.h"
#include "engine/options/use_options.h"

#include <atomic>
#include <utility>

namespace hindcast::engine {
namespace {

void refuse(const capture::Graph& graph, const std::string& reason) {
  stats_recorder().add_refused_graph();
  HC_LOG(CompiledAutograd, Error, "a captured graph is refused, please report it: {}\n{}", reason, graph.print());
}

// Logs a warning the first time.
void tell_too_large(PlanSlot& slot, size_t allowed) {
  static std::atomic<bool> is_said = false;
  const auto level = is_said.exchange(true) ? base::Level::Info : base::Level::Warning;
  if (!base::enabled(base::Channel::CompiledAutograd, level)) return;
  base::write_log(base::Channel::CompiledAutograd, level,
                  base::format("graph {} is not kept: it takes {} KiB, Options::cache_bytes allows {} KiB for all graphs", slot.graph()->id,
                               slot.footprint() >> 10, allowed >> 10));
}

// A graph that gets no kernels is still copied elsewhere if it was allocated among large tensors.
void queue(const std::shared_ptr<Variant>& variant, NewCapture& capture, const Options& options) {
  const std::shared_ptr<PlanSlot> slot(variant, &variant->slot());
  const Replay replay = replay_of(options.compiler);
  const bool through_aten = replay == Replay::GroupsThroughAten;
  if (through_aten || (replay == Replay::Kernels && !capture.bitwise)) {
    LowerRequest request{.through_aten = through_aten};
    if (options.verify) request.check = std::make_shared<const capture::ReplayCheck>(std::move(capture.check));
    compile({slot, std::move(request)}, options.async);
  } else if (capture.facts.among_large_tensors && replay != Replay::Compiled) {
    compile({slot, MoveOnly()}, true);
  }
}

// Returns false if the graph is too large.
bool keep_or_throw(NewCapture& capture, const Options& options) {
  capture::Graph& graph = *capture.graph;
  if (options.verify) {  // a graph whose replay on copies differs bitwise from the capture must never be used
    if (const auto wrong = verify_capture(graph, capture.check)) return refuse(graph, *wrong), true;
  }
  graph.id = static_cast<uint32_t>(stats_recorder().add_graph());
  graph.bitwise = capture.bitwise;
  log_graph(graph);

  const auto variant = std::make_shared<Variant>(capture.start, capture.facts.values(), std::move(capture.dynamic), capture.graph);
  if (replay_of(options.compiler) == Replay::Compiled) variant->compiled = compile_segments(options, capture.graph);
  variant->made_by(capture.now);
  if (!Captures::of_process().keep(capture.key, capture.entry, variant, options)) {
    tell_too_large(variant->slot(), options.cache_bytes);
    return false;
  }
  queue(variant, capture, options);
  if (capture.facts.among_large_tensors) return_free_heap_after_captures();
  return true;
}

}  // namespace

bool keep(NewCapture capture, const Options& options) {
  try {
    return keep_or_throw(capture, options);
  } catch (const std::exception& error) {
    refuse(*capture.graph, base::first_line(error));
  }
  return true;
}

}  // namespace hindcast::engine
