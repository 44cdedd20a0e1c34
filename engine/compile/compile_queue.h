#pragma once
// Compiles captured graphs in the background. Until a graph's plan is ready, it is replayed through ATen.

#include "engine/compile/lower.h"
#include "engine/plan/plan_slot.h"

#include <memory>
#include <variant>

namespace hindcast::engine {

/// Compiles nothing: copies the graph and its plan to memory away from the backwards' tensors (capture/graph/copy_graph.h).
struct MoveOnly {};

struct CompileJob {
  std::weak_ptr<PlanSlot> slot;  // if the slot has been freed, there is nothing to do
  std::variant<LowerRequest, MoveOnly> what;
  bool shares = false;  // its graph shares rows with graphs that are not moved: a full copy would duplicate them
};

/// Compiles the slot's better plan in the background, or at once. If that fails, which is logged and counted, the slot stays with ATen;
/// so does a slot whose job does not fit into the queue because of the tensors of its check.
void compile(CompileJob job, bool in_background);

}  // namespace hindcast::engine
