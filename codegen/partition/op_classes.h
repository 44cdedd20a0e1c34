#pragma once
// Classifies instrs by their op, to estimate the cost of recomputing them.

#include "codegen/partition/joint_uses.h"

#include <cstdint>

namespace hindcast::codegen {

enum class OpClass : uint8_t {
  View,
  Pointwise,  // also copies, sums of gradients, and new tensors
  Reduction,
  Random,
  Rows,  // norms, softmax, losses: can be fused, but are not purely memory-bound
  Concat,
  Product,  // matrix products, convolutions, attention: compute-bound
  Other,
};

OpClass class_of(const JointUses& uses, uint32_t i);

/// Whether the two may share a kernel.
bool is_fusible(OpClass producer, OpClass consumer);

/// A rough estimate of the instr's run time in nanoseconds, to distinguish expensive from cheap ones.
double cost_of(const JointUses& uses, uint32_t i, OpClass op_class);

}  // namespace hindcast::codegen
