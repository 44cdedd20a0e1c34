#pragma once

#include "capture/collected.h"
#include "capture/trace.h"
#include "codegen/plan.h"

namespace hindcast::engine {

/// A node has saved memory of a `.grad` that this backward may add to, or it flows in as a gradient. Who reads it must read it before or after, as in the stock
/// engine, and kernels change the order of what does not seem to depend on each other.
bool saves_a_gradient(const codegen::Plan& plan, const capture::Collected& collected, const capture::Resume& resume);

}  // namespace hindcast::engine
