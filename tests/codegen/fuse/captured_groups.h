#pragma once
// What a backward lowers to, without running it.

#include <memory>
#include <vector>

#include "codegen/cpu/cost_model.h"
#include "codegen/fuse/fuse.h"
#include "hindcast/hindcast.h"

namespace hindcast::tests {

/// The graph that `backward` captures.
template <class Backward>
std::shared_ptr<const Graph> captured_graph(const Backward& backward) {
  hindcast::reset();
  std::shared_ptr<const Graph> captured;
  const Compiler keep([&](const std::shared_ptr<const Graph>& graph) {
    captured = graph;
    return std::vector<SegmentFunction>(graph->segments().size());
  });
  const auto guard = hindcast::enable(keep);
  backward();
  return captured;
}

/// Its groups on the CPU.
template <class Backward>
std::vector<codegen::Group> groups_of(const Backward& backward) {
  return codegen::fuse(*captured_graph(backward), codegen::cpu::cost_model()).groups;
}

}  // namespace hindcast::tests
