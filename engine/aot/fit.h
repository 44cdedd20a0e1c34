#pragma once
// Recovers symbols for sizes that a traced program has as plain numbers.
//
// In C++, x.size(0) is an int, also in some of ATen's composite ops, so the trace has a number where the size's symbol should be. A trace
// at a second size has other numbers at the same places, so each can be expressed in the symbols: s, k*s, s*t, s/k, s+k. A trace at a third
// size confirms or refutes these expressions.

#include "capture/function/function_trace.h"
#include "capture/function/joint.h"

#include <optional>
#include <span>
#include <vector>

namespace hindcast::engine {

/// The program of one trace, and how the function's return values follow from it.
struct TracedProgram {
  capture::Joint joint;
  std::vector<capture::Returned> returned;
};

/// Returns `second` with its numbers replaced by expressions in its symbols. `first` is a program of the same function without symbols;
/// `values_in_first` are the symbols' values there. Adds relations that keep each size at 2 or more, unchanged sizes at their value, and
/// values' sizes of 0 and 1 as they are. Returns nullopt if the programs differ otherwise, or a number is no such expression. `infers`: the
/// result may serve sizes at which it was not compared with a trace; relations then also keep what was read of sizes as it was seen to be.
/// `is_too_small`: set if there is no result because a value's size is 0 or 1 in one of the programs only, so that other sizes may do.
std::optional<TracedProgram> fit(const TracedProgram& first, std::span<const int64_t> values_in_first, const TracedProgram& second,
                                 bool infers, bool& is_too_small);

/// True if `program`, with these values of its symbols, equals `third`, a program of the same function without symbols.
bool is_same_at(const TracedProgram& program, std::span<const int64_t> values, const TracedProgram& third);

}  // namespace hindcast::engine
