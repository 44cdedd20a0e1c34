#pragma once
// Times the backward of a call that ran the function eagerly, for BackOffPolicy to compare with a program's backward.

#include "engine/aot/aot_node.h"

namespace hindcast::engine {

/// If one node made all of these results, reports the time of its next backward to context->back_off.
void time_backward(const std::shared_ptr<AotContext>& context, const std::vector<at::Tensor>& results);

}  // namespace hindcast::engine
