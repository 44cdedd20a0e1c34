#pragma once
// Hooks and other observers of how a gradient is accumulated into a leaf. They see nothing of a step that does not run the autograd engine.

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

namespace hindcast::engine {

/// Why the gradients of these leaves must be accumulated by a backward. Null: nothing observes the accumulation.
const char* why_watched(const std::vector<at::Tensor>& leaves);

/// Whether the AccumulateGrad node of one of them has a hook.
bool are_accumulators_hooked(const std::vector<at::Tensor>& leaves);

/// In a trace: describes a leaf from outside of the function that `loss` depends on and that is not in `known`. Empty: no such
/// leaf, or no trace is active; outside of a trace, leaves that the function made cannot be told from others.
std::string describe_other_leaf(const at::Tensor& loss, const std::vector<at::Tensor>& known);

}  // namespace hindcast::engine
