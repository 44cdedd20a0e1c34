#pragma once
// Options::verify: recomputes a capture's results from copies of its inputs, and compares.
//
// Each function returns what is wrong and the folder of the reproducer that was written, or nullopt if nothing is wrong.

#include "capture/graph/replay_check.h"
#include "codegen/fuse/schedule.h"
#include "codegen/kernel/backend.h"

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace hindcast::engine {

/// Compares the graph, run op by op through ATen, with the results in `check`, bitwise.
std::optional<std::string> verify_graph(const capture::Graph& graph, const capture::ReplayCheck& check,
                                        capture::Zeros zeros = capture::Zeros::Signed);

/// The same for the graph of a capture that has just ended. If a hook wrote in place (ReplayCheck::is_written), the replay cannot be
/// compared with the capture: this is logged, and `check` gets the replay's results, as the reference for what is compiled from the graph.
std::optional<std::string> verify_capture(const capture::Graph& graph, capture::ReplayCheck& check);

/// Compares the kernel of every group, by its index in the schedule, with ATen on the capture's inputs.
std::optional<std::string> verify_kernels(const codegen::Backend& backend, const capture::Graph& graph, const codegen::Schedule& schedule,
                                          const std::vector<std::shared_ptr<const codegen::Kernel>>& kernels,
                                          const capture::ReplayCheck& check);

}  // namespace hindcast::engine
