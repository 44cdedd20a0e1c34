#pragma once
// Reads a node through LibTorch's own `compiled_args`. Slower than a typed collector (hash maps per node), and blind to
// field names, but it knows every class that LibTorch can collect.

#include "capture/backward/collected.h"

namespace hindcast::capture {

class Visitor {
 public:
  /// Appends the node's key bytes, sizes and tensors (each tensor once per node) to `out`.
  /// Fields count from `first_field`. Returns null, or why the node must be called as itself; then the caller removes what was appended.
  const char* collect(const torch::autograd::Node& node, uint32_t call, Collected& out, std::vector<FactOrigin>* origins,
                      uint32_t first_field = 0);
};

}  // namespace hindcast::capture
