#pragma once
// The passes of a row kernel over a row: which op is computed in which pass, and which values are kept for a later pass.
//
// A reduction over a row is known only when the row has been read; whatever needs its result reads the row again, in a later pass. A value
// that several passes need is recomputed in each if that is cheap, and is kept in memory otherwise.

#include "codegen/fuse/body.h"

#include <cstddef>

namespace hindcast::codegen {

class RowPasses {
 public:
  using IsCheap = bool(const BodyOp& op);
  /// `is_cheap`: whether recomputing the op costs less than a store and a load on this backend.
  RowPasses(const Body& body, IsCheap* is_cheap);

  static constexpr size_t kNone = ~size_t(0);
  /// Number of passes; 0 if all values of the body are one number per row.
  size_t count() const { return count_; }
  /// Number of values kept per element, of the compute type.
  size_t slots() const { return slots_; }
  /// The first pass that can compute the operand; for a number per row, the first pass that can read it.
  size_t pass_of(Operand operand) const { return operand.kind == Operand::Kind::Result ? ready_[operand.index] : 0; }
  size_t pass_of(size_t op) const { return ready_[op]; }

  bool is_of_rows(size_t op) const { return extents_[op] == Extent::Row; }
  bool is_of_segments(size_t op) const { return extents_[op] == Extent::Segment; }
  bool has_segments() const;
  /// Whether the op is one number per segment that is known only when the segment has been read.
  bool is_behind_segment(size_t op) const { return behind_segment_[op]; }

  /// Whether the op is a reduction over the row that is complete at the end of the pass.
  bool reduces(size_t pass, size_t op) const { return body_.ops[op].reduces_row() && ready_[op] == pass + 1; }
  bool computes(size_t pass, size_t op) const { return needed_[pass][op] && !reads_slot(pass, op); }
  bool loads(size_t pass, size_t load) const { return loads_[pass][load]; }
  /// kNone if no pass reads the load.
  size_t first_pass_of(size_t load) const;
  /// Whether more than one pass reads the load's elements.
  bool is_read_again(size_t load) const;

  /// kNone if the value is not kept.
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
