#pragma once
// Gradients of slices and of pads: a tensor padded with zeros, or a part of one. A kernel that reads it can read the unpadded tensor
// instead, with shifted indices.

#include "codegen/fuse/cost_model.h"
#include "hindcast/graph.h"

#include <optional>
#include <vector>

namespace hindcast::codegen {

/// How many elements of a dim come before the tensor's first; if negative, how many of the tensor's are cut off.
struct Offset {
  int64_t number = 0;
  // For a slice, in place of the number: its start; if negative, it counts from the end of a dim of size `size`.
  std::optional<capture::ExprId> start, size;
  bool operator==(const Offset&) const = default;
};

struct Padding {
  capture::ValueId source;
  std::vector<Offset> offsets;  // by dim
  bool is_part = false;         // known to contain no padding zeros
  bool is_whole = false;        // known to contain every element of the source
};

/// The padding that makes the instr's result; nullopt if the result is not a padded tensor.
std::optional<Padding> padding_of(const capture::Graph& graph, const capture::Instr& instr);

/// Whether a kernel should read the source in place, for an instr with a padding.
bool is_worth_reading_through(const capture::Graph& graph, const capture::Instr& instr, const CostModel& costs);

}  // namespace hindcast::codegen
