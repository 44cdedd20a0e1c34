#pragma once
// Options::verify: what a capture gave is computed again from copies of its inputs, and must come out the same.
//
// Each function says what is wrong, and in which folder a reproducer of it was written; nullopt: nothing is wrong.

#include "capture/graph/replay_check.h"
#include "codegen/fuse/schedule.h"
#include "codegen/kernel/backend.h"

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace hindcast::engine {

/// The graph, op by op through ATen, against the results in `check`, to the bit.
std::optional<std::string> verify_graph(const capture::Graph& graph, const capture::ReplayCheck& check,
                                        capture::Zeros zeros = capture::Zeros::Signed);

/// The same for the graph of a capture that has just ended. Where a hook wrote in place (ReplayCheck::is_written), the replay cannot be
/// compared with the capture: the log says so, and `check` has the replay's results from then on, for what is made of the graph.
std::optional<std::string> verify_capture(const capture::Graph& graph, capture::ReplayCheck& check);

/// The kernel of every group, by its place in the schedule, against ATen, on what the capture was given.
std::optional<std::string> verify_kernels(const codegen::Backend& backend, const capture::Graph& graph, const codegen::Schedule& schedule,
                                          const std::vector<std::shared_ptr<const codegen::Kernel>>& kernels,
                                          const capture::ReplayCheck& check);

}  // namespace hindcast::engine
