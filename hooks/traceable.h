#pragma once
// Which of a node's hooks are hindcast::traceable().

#include <torch/csrc/autograd/function.h>

#include <cstdint>

namespace hindcast::hooks {

/// Nonzero and equal for equal lists if all tensor pre-hooks of the node are traceable, 0 if any is not, or if the node has no such hook.
uint64_t traceable_fingerprint(torch::autograd::Node& node);

}  // namespace hindcast::hooks
