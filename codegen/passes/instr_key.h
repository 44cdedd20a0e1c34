#pragma once

#include "codegen/passes/rewrite.h"

#include <optional>
#include <string>

namespace hindcast::codegen {

/// A key that is equal for two instrs exactly if they are the same operator with the same arguments after `rewrite`: numbers are bitwise
/// equal (0.0 is not -0.0, 1 is not 1.0) and tensors identical. nullopt if running the op twice may give different results, or if an
/// argument cannot be compared.
std::optional<std::string> key_of(const capture::Instr& instr, const Rewrite& rewrite);

/// Whether this is an operator of LibTorch that is known to have no side effects. False for custom operators.
bool is_pure(const capture::Instr& instr);

}  // namespace hindcast::codegen
