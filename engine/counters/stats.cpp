#include "hindcast/stats.h"

#include "base/format.h"

#include <ostream>
#include <string_view>

namespace hindcast {
namespace {

using base::format;

void print_counts(std::ostream& out, std::string_view title, const std::map<std::string, std::uint64_t>& counts) {
  if (counts.empty()) return;
  out << "\n  " << title << ':';
  const char* separator = " ";
  for (const auto& [name, count] : counts) {
    out << separator << format("{} {}", name, count);
    separator = ", ";
  }
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const Stats& stats) {
  out << format("backwards {}: graphs {}, hits {}, misses {}", stats.backwards, stats.unique_graphs, stats.hits, stats.misses);
  print_counts(out, "misses", stats.misses_by_reason);
  print_counts(out, "fallbacks", stats.fallbacks_by_reason);
  print_counts(out, "opaque nodes", stats.opaque_nodes);
  if (stats.nodes != 0) {
    out << format("\n  nodes {}: {:.1f} ns each to collect and look up", stats.nodes, stats.ns_per_node());
    out << format("\n  us: collect {:.1f}, trace {:.1f}, run {:.1f}", stats.collect_us, stats.trace_us, stats.run_us);
  }
  if (stats.refused_graphs != 0) out << format("\n  refused graphs {}", stats.refused_graphs);
  if (stats.fused_graphs != 0) out << format("\n  fused graphs {}", stats.fused_graphs);
  if (stats.compiler_failures != 0) out << format("\n  compiler failures {}", stats.compiler_failures);
  if (stats.reused_buffers + stats.fresh_buffers != 0) {
    out << format("\n  large buffers: reused {}, fresh {}, returned {}, held {} of {} bytes", stats.reused_buffers, stats.fresh_buffers,
                  stats.returned_buffers, stats.held_buffers, stats.held_bytes);
  }
  if (stats.non_finite_backwards != 0) out << format("\n  backwards with non-finite gradients {}", stats.non_finite_backwards);
  if (stats.cuda_graphs != 0) {
    out << format("\n  CUDA graphs {}: launches {}, bytes {}", stats.cuda_graphs, stats.cuda_graph_launches, stats.cuda_graph_bytes);
  }
  print_counts(out, "without a CUDA graph", stats.without_cuda_graph);
  print_counts(out, "compiled functions that run eagerly", stats.eager_functions);
  if (stats.opaque_calls != 0 || stats.hook_calls != 0 || stats.segment_guard_failures != 0) {
    out << format("\n  opaque calls {}, hook calls {}, segment guard failures {}", stats.opaque_calls, stats.hook_calls,
                  stats.segment_guard_failures);
  }
  return out;
}

}  // namespace hindcast
