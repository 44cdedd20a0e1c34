#pragma once
// Who sees how a gradient comes to a leaf. A step whose gradients never pass through the engine would be invisible to them.

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

namespace hindcast::engine {

/// Why the gradients of these leaves must be accumulated by a backward; null: nobody sees how they come.
const char* why_watched(const std::vector<at::Tensor>& leaves);

/// Whether the AccumulateGrad node of one of them has a hook.
bool are_accumulators_hooked(const std::vector<at::Tensor>& leaves);

/// In a trace: a leaf from outside of the function that `loss` depends on, and that is none of `known`: what it is, for a message. Empty: there
/// is none, or nothing is traced. Then one that the function made looks like all others.
std::string describe_other_leaf(const at::Tensor& loss, const std::vector<at::Tensor>& known);

}  // namespace hindcast::engine
