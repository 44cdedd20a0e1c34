#pragma once
// Arguments that are windows of one tensor, as `x[:-1]` and `x[1:]`. A write to one changes the history of the others, which stand-ins do not
// show: autograd knows only of a base and its views.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace hindcast::engine {

/// Some of them are views of one tensor of real or complex numbers, or that tensor, and their ranges of memory meet.
bool are_windows(const std::vector<at::Tensor>& inputs);
/// By input, to see which were written to.
std::vector<int64_t> versions_of(const std::vector<at::Tensor>& inputs);

}  // namespace hindcast::engine
