#pragma once
// Runs a plan: ATen calls from slot to slot, and in their places hooks, opaque nodes and accumulation.

#include "capture/backward/collected.h"
#include "capture/backward/observer.h"
#include "capture/backward/trace.h"
#include "engine/backward_plan.h"
#include "engine/options.h"
#include "engine/recordings.h"
#include "hooks/node_streams.h"

#include <functional>

namespace hindcast::hooks {
class ThreadState;
}

namespace hindcast::engine {

struct RunRequest {
  const BackwardPlan& plan;
  const std::vector<SegmentFunction>* compiled = nullptr;  // of the user's compiler; null: op by op
  const capture::Bindings& bindings;
  const capture::Env& env;
  capture::Collected& collected;  // its tensors are moved into slots and dropped as the run passes them
  capture::Resume resume;
  bool keep_graph = false;
  std::vector<at::Tensor>& results;  // of grad()
  capture::Observer* observer = nullptr;
  RecordedPlan* recorded = nullptr;                  // of this plan and these bindings, entered; null: all is run step by step
  size_t recorded_bytes = 0;                         // that recordings of the process may hold
  hooks::NodeStreams* streams = nullptr;             // null: all nodes are on the CPU. With inputs only for a plan as captured
  const hooks::ThreadState* thread_state = nullptr;  // null: no user code runs
};

/// Returns where to go on when a boundary's results are not those of the capture (the collected tensors not yet used are
/// put back); nullopt when the backward is done. Throws what hooks, nodes and ops throw, with the stock engine's effects.
std::optional<capture::Resume> run(RunRequest request);

}  // namespace hindcast::engine
