#pragma once

#include <memory>
#include <vector>

#include "hindcast/graph.h"
#include "hindcast/options.h"

namespace hindcast::tests {

/// Keeps every graph that is captured under its compiler; runs go through ATen as usual.
///
///     KeptGraphs kept;
///     const auto guard = hindcast::enable(kept.compiler());
///     loss.backward();
///     EXPECT_EQ(kept.graphs.at(0)->origins.at(0), "SumBackward0");
struct KeptGraphs {
  std::vector<std::shared_ptr<const Graph>> graphs;

  Compiler compiler() {
    return Compiler([this](const std::shared_ptr<const Graph>& graph) {
      graphs.push_back(graph);
      return std::vector<SegmentFunction>(graph->segments().size());
    });
  }
};

}  // namespace hindcast::tests
