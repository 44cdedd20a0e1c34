#pragma once
// Results over all rows while they are made: each thread's share of the rows, and each block of a share, has results of its own, which
// are then merged, in order.

#include "codegen/fuse/group.h"
#include "codegen/kernel/launch_args.h"

#include <vector>

namespace hindcast::codegen::cpu {

class PartialResults {
 public:
  explicit PartialResults(const Body& body);
  bool empty() const { return stores_.empty(); }

  /// What one call has of each: elements, by store.
  using Counts = c10::SmallVector<int64_t, 16>;
  /// Memory for one of each, one behind the other.
  int64_t bytes(const Counts& counts) const;
  /// From now on the stores' pointers point there.
  void move_to(char* memory, Pointers& pointers, const Counts& counts) const;
  /// Moves the pointers behind one of each.
  void advance(Pointers& pointers, const Counts& counts) const;
  /// Results of no rows.
  void clear(const Pointers& pointers, const Counts& counts) const;
  /// Adds results of `rows` rows to those of `rows_before`.
  void merge(const Pointers& to, int64_t rows_before, const Pointers& from, int64_t rows, const Counts& counts) const;

 private:
  struct Store {
    size_t index;    // into Body::stores
    size_t pointer;  // of the kernel's
    Reduction::Kind kind;
    size_t m2_pointer = 0;  // Mean: of the M2 beside it; 0: there is none
  };
  std::vector<Store> stores_;
  at::ScalarType type_;
  int64_t width_;
};

}  // namespace hindcast::codegen::cpu
