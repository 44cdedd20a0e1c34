#pragma once
// What it takes to compute an instr again, by its op.

#include "codegen/partition/joint_uses.h"

#include <cstdint>

namespace hindcast::codegen {

enum class OpClass : uint8_t {
  View,
  Pointwise,  // copies, sums of gradients and new tensors too
  Reduction,
  Random,
  Rows,  // norms, softmax, losses: share kernels, and are no matter of memory alone
  Concat,
  Product,  // matrix products, convolutions, attention: costs more than to read its operands
  Other,
};

OpClass class_of(const JointUses& uses, uint32_t i);

/// Whether a kernel that has one of them may have the other too.
bool is_fusible(OpClass producer, OpClass consumer);

/// About how long the instr takes, in nanoseconds: only to tell dear ones from cheap ones.
double cost_of(const JointUses& uses, uint32_t i, OpClass op_class);

}  // namespace hindcast::codegen
