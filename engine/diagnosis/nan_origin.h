#pragma once
// Where infinities and NaN began: the graphs of a backward, replayed op by op on what they were given.

#include "capture/backward/collected.h"
#include "capture/backward/trace.h"

#include <optional>
#include <string>
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
  std::shared_ptr<const capture::Graph> graph;  // null: its nodes ran as themselves
  std::optional<capture::Env> env;              // nullopt: the values that the symbols had at capture
  uint32_t call = 0;                            // where it starts, and with what: capture::Resume
  capture::Stage stage = capture::Stage::NodeStart;
  std::vector<Given> values;
  std::vector<std::pair<uint32_t, Given>> buffers;
  std::vector<std::pair<capture::ValueId, Given>> inputs;  // what nodes saved, what hooks and opaque nodes returned
  std::vector<capture::ValueId> not_finite;                // gradients
};

/// Some lines, for a backward some of whose gradients are not finite. Nothing but the log sees of the replay.
std::string describe_origin(const std::vector<Leg>& legs, const capture::Collected& collected);

}  // namespace hindcast::engine
