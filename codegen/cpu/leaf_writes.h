#pragma once
// Gradients of leaves that a kernel writes while the values are in cache: into buffers of their own, or added to the
// gradients that the leaves have.

#include "codegen/cpu/launch.h"

#include <c10/util/FunctionRef.h>

namespace hindcast::codegen {

struct ResultLayout {
  Ints sizes, strides;
  at::ScalarType type = at::ScalarType::Float;
};

class LeafWrites {
 public:
  /// Answers what Step::leaves ask for. What can not be added in place is left to the leaf, its slot undefined.
  LeafWrites(const Group& group, const Step& step, Slots& slots, c10::function_ref<ResultLayout(size_t store)> layout_of);

  bool empty() const { return writes_.empty(); }
  struct Write {
    size_t leaf;  // into Group::leaves
    size_t store;
    char* memory;
    at::ScalarType type;
    bool adds;  // to what is there; else: there is nothing yet
  };
  c10::ArrayRef<Write> writes() const { return writes_; }
  /// Nobody reads a result, of an element each, but leaves that have added it: it needs no memory.
  bool is_only_added(size_t store) const;
  /// Elements [first, first + count) of a store, as they lie in memory, to all its leaves.
  void write(size_t store, const char* values, int64_t first, int64_t count) const;

 private:
  c10::SmallVector<Write, 4> writes_;
  c10::SmallVector<size_t, 4> only_added_;
};

/// to[i] += from[i], for types of floating point.
void add_elements(at::ScalarType type, char* to, const char* from, int64_t count);

}  // namespace hindcast::codegen
