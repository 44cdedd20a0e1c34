#pragma once
// A part of a backward that can be replayed: its graph and inputs, and the values that a replay computes.

#include "base/index.h"
#include "capture/backward/collected.h"
#include "capture/backward/backward_graph.h"

#include <functional>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

namespace hindcast::engine {

/// An input of a graph, and its version at that time.
struct Given {
  Given() = default;
  explicit Given(at::Tensor tensor);
  bool was_changed() const;

  at::Tensor tensor;
  uint32_t version = 0;
};

/// One part of a backward: from its start or the point where it resumed, to its end or the boundary that deviated from the capture.
struct Leg {
  std::shared_ptr<const capture::BackwardGraph> graph;  // nullptr: its nodes ran untraced
  std::optional<capture::Env> env;                      // nullopt: the symbols have their values at capture
  uint32_t call = 0;                                    // this and the next three: where it starts, and with what, as in capture::Resume
  capture::Stage stage = capture::Stage::NodeStart;
  std::vector<Given> values;
  std::vector<std::pair<uint32_t, Given>> buffers;
  std::vector<std::pair<capture::ValueId, Given>> inputs;  // what nodes saved, and what hooks and opaque nodes returned
  std::vector<capture::ValueId> not_finite;                // gradients
};

inline constexpr uint32_t kNoInstr = base::kNoIndex;

using Values = std::unordered_map<uint32_t, at::Tensor>;  // by ValueId

/// The values of the leg's symbols.
capture::Env env_of(const Leg& leg);

/// The values that the leg started with.
Values given_to(const Leg& leg);

/// Called after each instr, before the values that it reads last are dropped. Returns false to stop.
using Visit = std::function<bool(uint32_t instr, const Values& values)>;

/// Runs the instrs one by one, until `visit` returns false. Rethrows what an op throws.
void replay(const Leg& leg, const Visit& visit);

/// For each ValueId, whether the value is not finite. Ends at the first op that throws.
std::vector<bool> find_non_finite(const Leg& leg);

}  // namespace hindcast::engine
