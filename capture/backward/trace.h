#pragma once
// Pass 2, on a miss: runs every node once, for real, in the stock engine's order, and records what it did.
//
// A trace computes the true gradients and has all the effects of a backward (hooks, .grad, released tensors), so it never restarts. A node
// is run through its functional form on stand-ins for its tensors; a node that cannot be looked into is called as itself and becomes an
// opaque step.

#include "capture/backward/collected.h"
#include "capture/backward/observer.h"
#include "capture/graph/replay_check.h"
#include "hindcast/graph.h"
#include "hooks/node_streams.h"

namespace hindcast::hooks {
class ThreadState;
}

namespace hindcast::capture {

/// A state between two steps of a backward from which the rest can be run: the start, or after a boundary.
struct Resume {
  uint32_t call = 0;
  Stage stage = Stage::NodeStart;
  /// False: user code changed hooks or fields of node `call` since it was collected, or the thread's state for it, so no capture is valid
  /// for it.
  bool as_collected = true;
  std::vector<at::Tensor> values;                        // AfterTensorPre, AfterPre: inputs; AfterCall: outputs, then inputs
                                                         // if it has post hooks; AfterPost: outputs
  std::vector<std::pair<uint32_t, at::Tensor>> buffers;  // gradients waiting at flat node inputs, in order
};

/// Appends the facts of everything that flows in at `resume`.
void append_resume_facts(const Resume& resume, Facts& facts, std::vector<FactOrigin>* origins = nullptr);

inline constexpr int32_t kStaticFact = -1;

/// Which facts are dynamic, as numbers of symbols; equal numbers are one symbol. Integer and float symbols are numbered separately.
struct DynamicFacts {
  std::vector<int32_t> collected;  // empty: all static
  std::vector<int32_t> resumed;
  std::vector<int64_t> int_hints;
  std::vector<bool> is_size;  // per integer symbol: never negative
  std::vector<double> float_hints;
  std::vector<uint8_t> is_float;  // per collected fact: whether its symbol is a float one
};

struct TraceRequest {
  Collected& collected;                    // its tensors are dropped as the trace passes them
  Resume resume;                           // moved from
  const std::vector<FactOrigin>& origins;  // of collected.facts
  const DynamicFacts& dynamic;
  bool keep_graph = false;
  bool record = true;                // false: every node runs as itself, nothing is captured
  std::vector<at::Tensor>& results;  // of grad()
  void (*on_opaque)(const std::string& node_name, const std::string& reason) = nullptr;
  void (*on_hooks)() = nullptr;  // hooks of one node and kind were called
  ReplayCheck* check = nullptr;  // filled by the trace
  Observer* observer = nullptr;
  // nullptr: all nodes are on the CPU. Gradients that flow in at the start were already passed to it.
  hooks::NodeStreams* streams = nullptr;
  const hooks::ThreadState* thread_state = nullptr;  // nullptr: no user code runs
};

/// Runs the rest of the backward; returns what was captured, nullptr if `record` was false.
/// Throws what a node or a hook throws, with the stock engine's partial effects.
std::shared_ptr<BackwardGraph> trace(TraceRequest request);

}  // namespace hindcast::capture
