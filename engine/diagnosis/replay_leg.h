#pragma once
// A part of a backward that can be replayed: what its graph was given, and the values that come out of that again.

#include "capture/backward/collected.h"
#include "capture/backward/backward_graph.h"

#include <functional>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

namespace hindcast::engine {

/// A tensor that a graph was given, and how often it had been written to by then.
struct Given {
  Given() = default;
  explicit Given(at::Tensor tensor);
  bool was_changed() const;

  at::Tensor tensor;
  uint32_t version = 0;
};

/// A backward from its start, or from where it went on, to its end, or to the boundary behind which it went on otherwise.
struct Leg {
  std::shared_ptr<const capture::BackwardGraph> graph;  // null: its nodes ran as themselves
  std::optional<capture::Env> env;                      // nullopt: the values that the symbols had at capture
  uint32_t call = 0;                                    // where it starts, and with what: capture::Resume
  capture::Stage stage = capture::Stage::NodeStart;
  std::vector<Given> values;
  std::vector<std::pair<uint32_t, Given>> buffers;
  std::vector<std::pair<capture::ValueId, Given>> inputs;  // what nodes saved, what hooks and opaque nodes returned
  std::vector<capture::ValueId> not_finite;                // gradients
};

inline constexpr uint32_t kNoInstr = 0xffffffffu;

using Values = std::unordered_map<uint32_t, at::Tensor>;  // by ValueId

/// The values of the leg's symbols.
capture::Env env_of(const Leg& leg);

/// The values that the leg started with.
Values given_to(const Leg& leg);

/// Sees the values before those that the instr reads last are dropped; false: enough.
using Visit = std::function<bool(uint32_t instr, const Values& values)>;

/// Runs the instrs one by one, up to the end. Throws what an op throws.
void replay(const Leg& leg, const Visit& visit);

/// By ValueId: not finite. Ends at the first op that throws.
std::vector<bool> find_non_finite(const Leg& leg);

}  // namespace hindcast::engine
