#pragma once
// The passes of a row kernel over a row: which op is computed in which of them, and which values are kept from one to a later one.
//
// A reduction over a row is known once the row was read. What needs that number reads the row again, in a later pass. A value that several
// passes need is computed again in each where that is cheap, and is kept in memory otherwise.

#include "codegen/fuse/body.h"

#include <cstddef>

namespace hindcast::codegen {

class RowPasses {
 public:
  using IsCheap = bool(const BodyOp& op);
  /// `is_cheap`: on this backend, to compute the op again costs less than a store and a load.
  RowPasses(const Body& body, IsCheap* is_cheap);

  static constexpr size_t kNone = ~size_t(0);
  /// 0: the body has numbers of rows alone.
  size_t count() const { return count_; }
  /// Values of each element that are kept, of the arithmetic's type.
  size_t slots() const { return slots_; }
  /// The first pass that could compute it; of numbers of the row, the first that may read them.
  size_t pass_of(Operand operand) const { return operand.kind == Operand::Kind::Result ? ready_[operand.index] : 0; }
  size_t pass_of(size_t op) const { return ready_[op]; }

  bool is_of_rows(size_t op) const { return extents_[op] == Extent::Row; }
  bool is_of_segments(size_t op) const { return extents_[op] == Extent::Segment; }
  bool has_segments() const;
  /// A number of a segment that is known once the segment was read.
  bool is_behind_segment(size_t op) const { return behind_segment_[op]; }

  /// The row's reductions that are done when the pass ends.
  bool reduces(size_t pass, size_t op) const { return body_.ops[op].reduces_row() && ready_[op] == pass + 1; }
  bool computes(size_t pass, size_t op) const { return needed_[pass][op] && !reads_slot(pass, op); }
  bool loads(size_t pass, size_t load) const { return loads_[pass][load]; }
  /// kNone: no pass does.
  size_t first_pass_of(size_t load) const;
  /// Elements that more than one pass loads.
  bool is_read_again(size_t load) const;

  /// kNone: the value is not kept.
  size_t slot(size_t op) const { return slot_[op]; }
  bool fills_slot(size_t pass, size_t op) const { return slot_[op] != kNone && ready_[op] == pass; }
  bool reads_slot(size_t pass, size_t op) const { return needed_[pass][op] && slot_[op] != kNone && ready_[op] < pass; }

 private:
  void order_ops();
  void find_needed(size_t pass);
  void need(Operand operand, size_t pass);

  const Body& body_;
  IsCheap* const is_cheap_;
  const std::vector<Extent> extents_;
  std::vector<size_t> ready_, slot_;
  std::vector<bool> behind_segment_;
  std::vector<std::vector<bool>> needed_, loads_;  // by pass
  size_t count_ = 0, slots_ = 0;
};

}  // namespace hindcast::codegen
