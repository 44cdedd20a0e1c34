#pragma once
// Facts about ATen operators beyond their schemas and tags: the rows of aten_ops.def.

#include <ATen/core/operator_name.h>

#include <cstdint>
#include <span>
#include <string_view>

namespace hindcast::capture {

/// What computing an operator costs.
enum class OpKind : uint8_t { Other, Copy, Reduction, Concat, Product };

/// How a view relates to the tensor that it views.
enum class ViewKind : uint8_t {
  Other,      // not a view, or another kind
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
    Constant = 1 << 8,
  };
  std::string_view name;
  OpKind kind = OpKind::Other;
  ViewKind view = ViewKind::Other;
  uint8_t images = 0;
  uint16_t flags = None;

  bool has(Flags flag) const { return (flags & flag) != 0; }
};

/// The row of an operator of the namespace aten; an empty one for all others. add_ is not add.
const OpFacts& facts_of(const c10::OperatorName& op);
/// The same, where an in-place operator has the row of its functional form: add_ has that of add.
const OpFacts& facts_of_functional(const c10::OperatorName& op);

/// All rows.
std::span<const OpFacts> known_ops();

}  // namespace hindcast::capture
