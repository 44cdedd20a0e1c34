#pragma once
// Runs a plan: kernels and ATen calls from slot to slot, with hooks, opaque nodes and accumulation at their places in between.

#include "capture/backward/collected.h"
#include "capture/backward/observer.h"
#include "capture/backward/trace.h"
#include "engine/cuda_graphs/recordings.h"
#include "engine/plan/backward_plan.h"
#include "hindcast/options.h"
#include "hooks/node_streams.h"

#include <functional>

namespace hindcast::hooks {
class ThreadState;
}

namespace hindcast::engine {

struct RunRequest {
  const BackwardPlan& plan;
  const std::vector<SegmentFunction>* compiled = nullptr;  // made by the user's compiler; nullptr: run the plan's steps
  const capture::Bindings& bindings;
  const capture::Env& env;
  capture::Collected& collected;  // its tensors are moved into slots and dropped as the run proceeds
  capture::Resume resume;
  bool keep_graph = false;
  std::vector<at::Tensor>& results;  // of grad()
  capture::Observer* observer = nullptr;
  RecordedPlan* recorded = nullptr;                  // CUDA graphs of this plan and these bindings, entered; nullptr: none
  size_t recorded_bytes = 0;                         // limit on the bytes that the process's CUDA graphs may hold
  hooks::NodeStreams* streams = nullptr;             // nullptr: all nodes are on the CPU. Has inputs only for a plan as captured
  const hooks::ThreadState* thread_state = nullptr;  // nullptr: no user code runs
};

/// Returns nullopt when the backward is done. If a boundary's results differ from those at capture, puts the unused collected tensors
/// back and returns where to continue. Rethrows what hooks, nodes and ops throw, with the same side effects as the stock engine.
std::optional<capture::Resume> run(RunRequest request);

}  // namespace hindcast::engine
