#pragma once
// Partial results over rows: each thread's share of the rows, and each block of a share, has its own. They are then merged in order.

#include "codegen/fuse/group.h"
#include "codegen/kernel/launch_args.h"

#include <vector>

namespace hindcast::codegen::cpu {

class PartialResults {
 public:
  explicit PartialResults(const Body& body);
  bool empty() const { return stores_.empty(); }

  /// The number of elements of each result in one call, by store.
  using Counts = c10::SmallVector<int64_t, 16>;
  /// Bytes of one set of partial results, all stores one after the other.
  int64_t bytes(const Counts& counts) const;
  /// Redirects the stores' pointers to `memory`.
  void move_to(char* memory, Pointers& pointers, const Counts& counts) const;
  /// Advances the pointers by one set of partial results.
  void advance(Pointers& pointers, const Counts& counts) const;
  /// Initialises the partial results to those of no rows.
  void clear(const Pointers& pointers, const Counts& counts) const;
  /// Merges the results of `rows` rows into those of `rows_before` rows.
  void merge(const Pointers& to, int64_t rows_before, const Pointers& from, int64_t rows, const Counts& counts) const;

 private:
  struct Store {
    size_t index;    // into Body::stores
    size_t pointer;  // index in the kernel's pointers
    Reduction::Kind kind;
    size_t m2_pointer = 0;  // Mean: the pointer of the M2 of the same value; 0 if the body has no M2
  };
  std::vector<Store> stores_;
  at::ScalarType type_;
  int64_t width_;
};

}  // namespace hindcast::codegen::cpu
