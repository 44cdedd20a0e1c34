#pragma once
// Gradients of slices and of pads: a tensor with zeros around it, or a part of one. Who reads it can as well read the tensor itself, each
// element from its place.

#include "capture/graph/graph.h"
#include "codegen/fuse/cost_model.h"

#include <optional>
#include <vector>

namespace hindcast::codegen {

/// How many elements of a dim come before the tensor's first; below 0: how many of the tensor's are left out.
struct Offset {
  int64_t number = 0;
  // Of a slice: its start, in place of the number; where that is below 0 it counts from the end of a dim of this size.
  std::optional<capture::ExprId> start, size;
  bool operator==(const Offset&) const = default;
};

struct Padding {
  capture::ValueId source;
  std::vector<Offset> offsets;  // by dim
  bool is_part = false;         // it is known that no element of it is a zero from around the source
  bool is_whole = false;        // it is known that each element of the source is there
};

/// Of the value that the instr makes; nullopt: it is something else.
std::optional<Padding> padding_of(const capture::Graph& graph, const capture::Instr& instr);

/// It is worth it that a kernel reads the source of an instr that has a padding in place.
bool is_worth_reading_through(const capture::Graph& graph, const capture::Instr& instr, const CostModel& costs);

}  // namespace hindcast::codegen
