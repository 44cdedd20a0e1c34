#pragma once
// Finds hooks and other observers of gradient accumulation into leaf tensors. A step that bypasses the autograd engine does not call them.

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

namespace hindcast::engine {

/// Why the gradients of these leaf tensors must be accumulated by a backward; nullptr if nothing observes the accumulation.
const char* why_watched(const std::vector<at::Tensor>& leaves);

/// True if the AccumulateGrad node of one of them has a hook.
bool are_accumulators_hooked(const std::vector<at::Tensor>& leaves);

/// During a trace: describes a leaf tensor from outside the function that `loss` depends on and that is not in `known`. Empty if there is
/// none, or if no trace is active: without one, leaf tensors that the function made cannot be distinguished from others.
std::string describe_other_leaf(const at::Tensor& loss, const std::vector<at::Tensor>& known);

}  // namespace hindcast::engine
