#pragma once
// A group under construction: whether an instr can join it, and its body after that.

#include "codegen/fuse/cost_model.h"
#include "codegen/fuse/group.h"
#include "codegen/fuse/member.h"
#include "codegen/fuse/views.h"

#include <optional>
#include <unordered_map>
#include <vector>

namespace hindcast::codegen {

class OpenGroup {
 public:
  OpenGroup(const capture::Graph& graph, const Views& views, const CostModel& costs) : graph_(&graph), views_(&views), costs_(&costs) {}

  /// How a member fits into the group, and the group's domain after it joins.
  struct Place {
    Sizes domain;
    std::vector<std::vector<uint8_t>> axes_of_axis;  // by axis of the old domain: axes of the new one
    std::vector<std::vector<uint8_t>> axes_of_dim;   // by dim of the member's domain: axes of the new domain
    uint32_t columns = 0, channels = 0;              // as Group has them
    bool is_of_rows = false;                         // the member has one element per row
    uint32_t summed = 0;                             // Reduction: bit mask of the axes
    std::optional<RowShape> new_rows = {};           // set if the member turns the group into a row kernel
  };
  /// nullopt if the member's domain, order, type or operands are incompatible with the group.
  std::optional<Place> find_place(const Member& member) const;
  /// Adds `member`, the description of the graph's `instr`.
  void add(uint32_t instr, const Member& member, const Place& place);

  bool makes(capture::ValueId value) const { return made_.contains(value.index) || is_concat(value); }
  bool loads(capture::ValueId value) const;
  /// Returns the finished group; values for which `is_read` says that there is a reader outside the group are stored.
  template <class IsRead>
  Group finish(IsRead is_read) {
    for (const uint32_t member : group_.members) {
      for (const capture::ValueId output : graph_->instrs[member].outputs) {
        if (output.defined() && made_.contains(output.index) && is_read(output)) store(output);
      }
    }
    std::erase_if(group_.concats, [&](const Group::Concat& concat) { return !is_read(concat.value); });
    for (const Group::Concat& concat : group_.concats) store_parts(concat);
    group_.unread = unread();
    return std::move(group_);
  }
  /// The current value of Group::unread.
  std::vector<capture::ValueId> unread() const;

  const Group& group() const { return group_; }

 private:
  class Builder;
  struct Made {
    Operand value;
    Extent extent = Extent::Element;
    Reduction::Kind over_rows = Reduction::Kind::Sum;  // as in BodyStore
    std::vector<int8_t> dim_of_axis = {};              // as in Access; empty: contiguous
  };

  std::optional<Place> place_behind_product(const Member& member) const;
  std::vector<int8_t> dims_of_result(const Member& member, const Place& place) const;
  bool lies_as_made(const Made& made, const Access& access, const Place& place) const;
  bool is_as_large_as_an_operand(const Member& member, Extent extent) const;
  std::optional<Place> place_over(const Member& member, const Sizes& axes, const std::vector<uint8_t>& numbers, bool is_of_rows) const;
  bool set_columns(const Member& member, Place& place) const;
  bool go_in_two_loops(uint32_t columns, const Place& place) const;
  bool make_rows(uint32_t columns, const Member& member, Place& place) const;
  bool can_read(const Member& member, const Place& place, const MemberOperand& operand) const;
  std::optional<Access> access_of(const Place& place, const Member& member, const MemberOperand& operand) const;
  std::optional<AccessPattern> pattern_of(capture::ValueId value, const Access& access, const Sizes& domain, uint32_t columns,
                                          uint32_t channels) const;
  bool counts(size_t load) const;
  int64_t elements_of_row() const;
  bool repeats_numbers_of_rows_of(int64_t elements) const;
  bool is_cut(capture::ValueId value, const Access& access, size_t dim) const;
  bool is_cut_along(uint8_t axis) const;
  Access moved(const Access& access, const Place& place) const;
  std::vector<uint8_t> row_axes() const;
  bool is_concat(capture::ValueId value) const;
  void add_concat(uint32_t instr, const Member& member, const Place& place);
  void store(capture::ValueId value);
  void store_parts(const Group::Concat& concat);

  const capture::Graph* graph_;
  const Views* views_;
  const CostModel* costs_;
  Group group_;
  std::unordered_map<uint32_t, Made> made_;
};

}  // namespace hindcast::codegen
