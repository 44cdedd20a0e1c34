#pragma once
// Operators such as unsafe_split(), whose results share memory with their argument while autograd does not treat them as views.

#include "hindcast/graph.h"

#include <ATen/core/Tensor.h>

#include <vector>

namespace hindcast::capture {

/// Whether a write to the step's result changes the history of what it is taken of.
bool is_view_for_autograd(const ViewStep& step);
/// Whether tracked_view() knows the operator.
bool has_tracked_view(const ViewStep& step);
/// For such an operator, the same elements as a view that autograd tracks. `args`: the step's arguments, `of` among them.
at::Tensor tracked_view(const ViewStep& step, const at::Tensor& of, const std::vector<c10::IValue>& args);

}  // namespace hindcast::capture
