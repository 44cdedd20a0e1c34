#pragma once
// Detects arguments that are overlapping views of one tensor, such as `x[:-1]` and `x[1:]`. An in-place write to one changes the autograd
// history of the others. In a trace each argument has its own stand-in, without a common base, so autograd could not do that there. The
// same holds for an expanded argument, whose rows are such views.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace hindcast::engine {

/// True if an input that requires grad is expanded, or if two inputs are views of the same floating-point or complex tensor, or that tensor
/// itself, and their memory ranges overlap. A range is from the first element to the last: the parts of `x.chunk(2, -1)` overlap.
bool are_windows(const std::vector<at::Tensor>& inputs);
/// The version counter of each input; 0 for inputs without one.
std::vector<int64_t> versions_of(const std::vector<at::Tensor>& inputs);

}  // namespace hindcast::engine
