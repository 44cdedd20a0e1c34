#pragma once
// What is known of an ATen operator beside its schema and its tags: the rows of aten_ops.def.

#include <ATen/core/operator_name.h>

#include <cstdint>
#include <span>
#include <string_view>

namespace hindcast::capture {

/// What computing an operator costs.
enum class OpKind : uint8_t { Other, Copy, Reduction, Concat, Product };

/// Which elements of its first argument a view has.
enum class ViewKind : uint8_t {
  Other,      // not a view, or another one
  Reshape,    // the same elements in the same order
  Transpose,  // the same elements, dims in another order
  Alias,      // the same tensor
  Broadcast,
  Conjugate,
};

struct OpFacts {
  enum Flags : uint16_t {
    None = 0,
    Linear = 1 << 0,
    Fill = 1 << 1,
    Zeros = 1 << 2,
    Compares = 1 << 3,
    Statistics = 1 << 4,
    Arithmetic = 1 << 5,
    Strides = 1 << 6,
    FreeSigns = 1 << 7,
  };
  std::string_view name;
  OpKind kind = OpKind::Other;
  ViewKind view = ViewKind::Other;
  uint8_t images = 0;
  uint16_t flags = None;

  bool has(Flags flag) const { return (flags & flag) != 0; }
};

/// The row of an operator of the namespace aten; an empty one for all others. The name counts as it stands: add_ is not add.
const OpFacts& facts_of(const c10::OperatorName& op);
/// The row of the operator that makes a new tensor of what this one writes in place: of add, for add_.
const OpFacts& facts_of_functional(const c10::OperatorName& op);

/// All rows.
std::span<const OpFacts> known_ops();

}  // namespace hindcast::capture
