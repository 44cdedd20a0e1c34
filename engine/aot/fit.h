#pragma once
// Sizes that a program has as plain numbers.
//
// C++ says x.size(0) as an int, and so do some of ATen's composites: such a number stands in the program where the size's symbol should.
// A trace at a second size has other numbers at the same places, so that each can be expressed by the symbols: s, k*s, s*t, s/k, s+k.
// Whether that was right, a trace at a third size says.

#include "capture/function/function_trace.h"
#include "capture/function/joint.h"

#include <optional>
#include <span>
#include <vector>

namespace hindcast::engine {

/// A program, and what the function returns of it, as one trace made them.
struct TracedProgram {
  capture::Joint joint;
  std::vector<capture::Returned> returned;
};

/// `second` with its numbers as expressions of its symbols, which have these values in `first`, a program of the same function without
/// symbols; and relations that keep each size at 2 or more, and at its value where it did not change. Nullopt: they are other programs, or
/// a number is no such expression. `infers`: it may serve sizes at which it was not compared with a trace.
std::optional<TracedProgram> fit(const TracedProgram& first, std::span<const int64_t> values_in_first, const TracedProgram& second,
                                 bool infers);

/// Whether `program` is `third`, a program of the same function without symbols, where its symbols have these values.
bool is_same_at(const TracedProgram& program, std::span<const int64_t> values, const TracedProgram& third);

}  // namespace hindcast::engine
