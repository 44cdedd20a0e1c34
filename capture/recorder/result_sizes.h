#pragma once
// Symbolic sizes of an op's results: from the op's shape rule, or by pinning every size that reaches the op.

#include "capture/shape_rules/shape_rules.h"

namespace hindcast::capture {

/// Per output; empty for an undefined one. `inputs` are those of the formula, `outputs` are real.
std::vector<Sizes> result_sizes(const c10::OperatorHandle& op, const std::vector<c10::IValue>& inputs,
                                const std::vector<at::Tensor>& outputs, SymbolTable& symbols);

}  // namespace hindcast::capture
