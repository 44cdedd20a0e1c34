#pragma once
// The time of a call's backward, where the call itself ran the function: what Leaving compares a program's with.

#include "engine/aot/aot_node.h"

namespace hindcast::engine {

/// Tells context->leaving what the node that made these results takes in its next backward, if one node made all of them.
void time_backward(const std::shared_ptr<AotContext>& context, const std::vector<at::Tensor>& results);

}  // namespace hindcast::engine
