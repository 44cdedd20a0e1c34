#pragma once
// Views that a kernel reads through, instead of having them materialised: broadcasts, reshapes of contiguous memory, conjugates, padding
// (codegen/fuse/padding.h). ATen copies a conjugate before it computes with it; such copies of complex tensors are read through as well.

#include "codegen/fuse/cost_model.h"
#include "codegen/fuse/padding.h"
#include "codegen/fuse/shapes.h"
#include "hindcast/graph.h"

#include <optional>
#include <unordered_map>
#include <vector>

namespace hindcast::codegen {

/// The dims from outermost to innermost, if the value is dense in that order; nullopt otherwise, also for values without strides.
std::optional<std::vector<uint8_t>> dense_order(const capture::Graph& graph, const capture::Value& value);
bool is_contiguous(const capture::Graph& graph, const capture::Value& value);

class Views {
 public:
  Views(const capture::Graph& graph, const CostModel& costs);

  bool is_read_through(uint32_t instr) const { return kinds_[instr] != Kind::None; }

  /// The value that is read in place of another, and the shape as which it is read, before broadcasting.
  struct Source {
    capture::ValueId value;
    Sizes sizes;
    bool is_reshaped = false;
    bool is_conjugated = false;
    std::vector<std::vector<Offset>> offsets = {};  // by dim, to be added up: its place among padding zeros; empty: not padded
  };
  Source source_of(capture::ValueId value) const;
  /// Whether the value is a result of `hindcast::counters` (random_ops.h).
  bool are_counters(capture::ValueId value) const { return are_counters_[value.index]; }
  /// The views between the value and its source.
  void append_views(capture::ValueId value, std::vector<uint32_t>& views) const;

 private:
  enum class Kind : uint8_t { None, Broadcast, Reshape, Conjugate, Copy, Padding };
  Kind kind_of(const capture::Instr& instr) const;
  bool is_padding(const capture::Instr& instr) const;
  std::vector<bool> values_that_leave_their_segment() const;
  std::vector<bool> values_wanted_as_tensors() const;
  template <class Visit>
  void walk(capture::ValueId value, Visit visit) const;

  const capture::Graph& graph_;
  const CostModel& costs_;
  const std::vector<bool> leaves_its_segment_, is_wanted_as_tensor_;  // by value
  std::vector<Kind> kinds_;                                           // by instr
  std::unordered_map<uint32_t, Padding> paddings_;                    // the same
  std::vector<uint32_t> maker_;                                       // by value: the view that makes it, or kNoIndex
  std::vector<bool> are_counters_;                                    // by value
};

}  // namespace hindcast::codegen
