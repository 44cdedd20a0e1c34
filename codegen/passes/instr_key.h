#pragma once

#include "codegen/passes/rewrite.h"

#include <optional>
#include <string>

namespace hindcast::codegen {

/// Bytes that two instrs have in common exactly when they are the same operator with the same arguments, read as `rewrite`
/// says: numbers equal to the bit (0.0 is not -0.0, 1 is not 1.0) and tensors identical. Nullopt: running it twice may give two results, or
/// an argument cannot be compared.
std::optional<std::string> key_of(const capture::Instr& instr, const Rewrite& rewrite);

/// An operator of LibTorch's own that is known to do nothing but return. Of others nobody knows.
bool is_pure(const capture::Instr& instr);

}  // namespace hindcast::codegen
