#pragma once
// Numbers that ATen makes tensors of, as the 0.1 in `x + 0.1`.

#include "hindcast/graph.h"

#include <optional>

namespace hindcast::capture {

/// The number, if the instr makes a tensor without dims of an integer or a double.
std::optional<at::Scalar> wrapped_number(const Instr& instr);

/// For the tensor overload of add, sub, mul or div: the one with a number as second argument. ATen's implementation of it makes a tensor of
/// the number, and calls the tensor overload. nullopt for any other op.
std::optional<c10::OperatorHandle> overload_with_number(const c10::OperatorHandle& op);

}  // namespace hindcast::capture
