#pragma once
// Reads a node through LibTorch's own `compiled_args`. Slower than a typed collector (hash maps per node), and blind to
// field names, but it knows every class that LibTorch can collect.

#include "capture/backward/collected.h"

#include <exception>

namespace hindcast::capture {

/// Whether it is the node of a C++ torch::autograd::Function.
bool is_cpp_function(const torch::autograd::Node& node);

inline constexpr const char* kNotVisited = "LibTorch's visitor cannot collect it";
/// `error` is from LibTorch's visitor: why it refuses this kind of custom Function, declared traceable or not. nullptr: the error is about
/// one node.
const char* why_class_is_refused(const std::exception& error);

class Visitor {
 public:
  /// Appends the node's key bytes, sizes and tensors (each tensor once per node) to `out`. Fields count from `first_field`. Returns
  /// nullptr, or why the node must be called as itself; then the caller removes what was appended.
  const char* collect(const torch::autograd::Node& node, uint32_t call, Collected& out, std::vector<FactOrigin>* origins,
                      uint32_t first_field = 0);
};

}  // namespace hindcast::capture
