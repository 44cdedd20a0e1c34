#pragma once
// Inputs of a function that were computed from other inputs outside of it, as in f(x, h) with h = x.exp(). Eager's gradient of x, taken
// within the function, includes the part through h.

#include <torch/csrc/autograd/edge.h>

#include <vector>

namespace hindcast::capture {

/// Whether the history of another input leads to one of `asked`, or another input is the same tensor. `edges`: where the inputs' gradients
/// arrive; invalid for one that requires none. Takes time proportional to the nodes of these histories.
bool leads_another_to_any(const std::vector<torch::autograd::Edge>& edges, const std::vector<uint32_t>& asked);

}  // namespace hindcast::capture
