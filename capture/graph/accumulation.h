#pragma once
// Recognises sums of gradients in the captured backward of a function.

#include "hindcast/graph.h"

namespace hindcast::capture {

/// Whether the instr may be LibTorch's sum of gradients that flow into one node. LibTorch adds while the node that gives the second
/// gradient is the current one, so the sum has that node's formula number (Instr::formula). A formula's own sum looks the same.
inline bool may_be_accumulation(const Instr& instr) {
  if (instr.kind == InstrKind::AddGrads) return true;
  if (!instr.op) return false;
  const std::string& name = instr.op->operator_name().name;
  return name == "aten::add" || name == "aten::add_";
}

}  // namespace hindcast::capture
