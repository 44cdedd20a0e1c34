#pragma once
// Better plans for captured graphs, made beside the backwards: until one is ready, its graph is replayed through ATen.

#include "engine/lower.h"
#include "engine/plan_slot.h"

#include <memory>
#include <variant>

namespace hindcast::engine {

/// Only moves the graph and its plan out of the way of the backwards' tensors (capture/graph/copy_graph.h).
struct MoveOnly {};

struct CompileJob {
  std::weak_ptr<PlanSlot> slot;  // a slot that has gone wants no plan: there is nothing to do
  std::variant<LowerRequest, MoveOnly> what;
  bool shares = false;  // its graph shares rows with others that stay where they are: moved, they would be there twice
};

/// Makes the slot's better plan in the background, or at once. What fails is logged and counted, and the slot stays with ATen; so does
/// one whose check finds no room to wait in.
void compile(CompileJob job, bool in_background);

}  // namespace hindcast::engine
