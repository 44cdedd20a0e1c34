#pragma once
// Trace records of graphs: what was captured, and what it was compiled to. Check base::tracing() first.

#include "codegen/fuse/schedule.h"
#include "codegen/kernel/backend.h"
#include "hindcast/graph.h"

#include <cstdint>
#include <string>
#include <string_view>

namespace hindcast::engine {

/// `role`: "backward", "forward of a function", "backward of a function".
void record_graph(const capture::Graph& graph, std::string_view role);

/// A function's joint program, from which the programs `forward` and `backward` were made.
void record_joint(const capture::Graph& joint, uint32_t forward, uint32_t backward);

/// The line about a group in the log `fusion`.
std::string sentence_of(const codegen::Group& group, const capture::Graph& graph);

/// Records `graph` as rewritten by the passes, and its groups. `kernels`: the backend whose kernels run the groups; may be nullptr.
void record_groups(const codegen::Schedule& schedule, const capture::Graph& graph, const codegen::Backend* kernels);

}  // namespace hindcast::engine
