#pragma once
// Records of graphs: what was captured, and what became of it. Ask base::tracing() first.

#include "capture/graph/graph.h"
#include "codegen/fuse/schedule.h"
#include "codegen/kernel/backend.h"

#include <cstdint>
#include <string>
#include <string_view>

namespace hindcast::engine {

/// `role`: "backward", "forward of a function", "backward of a function".
void record_graph(const capture::Graph& graph, std::string_view role);

/// A function's forward and backward as one, of which the programs `forward` and `backward` were made.
void record_joint(const capture::Graph& joint, uint32_t forward, uint32_t backward);

/// What the log `fusion` says of a group.
std::string sentence_of(const codegen::Group& group, const capture::Graph& graph);

/// `graph`, which the passes made of the graph with its number, and its groups. `kernels`: the groups run as such, of this backend.
void record_groups(const codegen::Schedule& schedule, const capture::Graph& graph, const codegen::Backend* kernels);

}  // namespace hindcast::engine
