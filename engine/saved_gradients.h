#pragma once

#include "capture/collected.h"
#include "capture/trace.h"
#include "codegen/plan.h"

namespace hindcast::engine {

// Who reads memory of a `.grad` must read it before or after a leaf adds to it, as in the stock engine, and kernels change the order of
// what does not seem to depend on each other.

/// A node has saved memory of a `.grad` that this backward may add to, or it flows in as a gradient.
bool saves_a_gradient(const codegen::Plan& plan, const capture::Collected& collected, const capture::Resume& resume);

/// User code returned such memory.
bool is_memory_of_a_gradient(const std::vector<at::Tensor>& returned, const codegen::Plan& plan, const capture::Collected& collected);

}  // namespace hindcast::engine
