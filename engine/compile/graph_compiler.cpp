#include "engine/compile/graph_compiler.h"

#include "base/first_line.h"
#include "base/log.h"
#include "engine/counters/stats_recorder.h"

namespace hindcast::engine {

std::vector<SegmentFunction> compile_segments(const Options& options, const std::shared_ptr<const capture::Graph>& graph) {
  const size_t segments = graph->segments().size();
  try {
    auto functions = options.compiler(graph);
    if (functions.size() == segments) return functions;
    HC_LOG(CompiledAutograd, Warning,
           "the graph compiler returned {} functions for the {} segments of graph {}: it is replayed through ATen", functions.size(),
           segments, graph->id);
  } catch (const std::exception& error) {
    HC_LOG(CompiledAutograd, Warning, "the graph compiler failed on graph {}: {}; it is replayed through ATen", graph->id,
           base::first_line(error));
  } catch (...) {
    HC_LOG(CompiledAutograd, Warning,
           "the graph compiler failed on graph {} with an exception that is not a std::exception; it is replayed through ATen", graph->id);
  }
  stats_recorder().add_compiler_failure();
  return {};
}

}  // namespace hindcast::engine
