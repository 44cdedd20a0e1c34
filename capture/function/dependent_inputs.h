#pragma once
// Inputs of a function that were computed from other inputs outside of it, as in f(x, h) with h = x.exp(). Eager's gradient of x, taken
// within the function, includes the part through h.

#include <torch/csrc/autograd/edge.h>

#include <vector>

namespace hindcast::capture {

/// Whether eager's gradient of one of `asked`, taken within the function, depends on the caller's graph: the history of another input leads
/// to it, another input is the same tensor, or it has a hook. `edges`: where the inputs' gradients arrive; invalid for one that requires
/// none. Takes time proportional to the nodes of these histories.
bool needs_callers_graph(const std::vector<torch::autograd::Edge>& edges, const std::vector<uint32_t>& asked);

/// Why such a function runs eagerly.
constexpr const char* kNeedsCallersGraph =
    "it takes the gradient of an argument from which another one was computed, or that has a hook. Compute the other one in the function";

}  // namespace hindcast::capture
