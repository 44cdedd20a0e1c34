#pragma once
// Hand-built row bodies, run in a kernel of the backend for the CPU or of its replacement.

#include <ATen/core/Tensor.h>

#include <vector>

#include "codegen/fuse/body.h"

namespace hindcast::tests {

inline constexpr codegen::Operand kX{codegen::Operand::Kind::Load, 0};
inline codegen::Operand result(uint32_t op) { return {codegen::Operand::Kind::Result, op}; }
inline codegen::BodyOp reduction(codegen::Reduction::Kind kind, codegen::Reduction::Over over, codegen::Operand operand = kX) {
  return {{}, {operand}, codegen::BodyOp::Kind::Reduction, {kind, over}};
}

/// A body over rows of a tensor: dim 0 counts rows; of three dims, dim 1 counts segments, which are channels.
struct RowProgram {
  std::vector<codegen::BodyOp> ops = {};
  std::vector<codegen::BodyStore> stores = {};

  void store(codegen::Operand value, codegen::Extent extent, codegen::Reduction::Kind over_rows = codegen::Reduction::Kind::Sum) {
    stores.push_back({value, c10::ScalarType::Float, extent, 0, over_rows});
  }
  std::vector<at::Tensor> run(const at::Tensor& x) const;
};

/// Mean and sum of squared deviations: per row, and per column.
RowProgram moments();
/// Per row: the softmax, the maximum, and the sum of the powers relative to it.
RowProgram softmax();
/// The largest distance in units of the rounding error of `scale`.
double units(const at::Tensor& ours, const at::Tensor& exact, const at::Tensor& scale);

}  // namespace hindcast::tests
